"""A remote engine answers like the local one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localrun.config import Config
from localrun.errors import InvalidOutputError, RemoteError, UsageError
from localrun.params import ConstraintSpec, SamplingParams
from localrun.remote.settings import engine_settings
from localrun.responder import Done, ReasoningPiece, TextPiece, WarningRaised
from tests.remote.conftest import Open, ask, events, request
from tests.remote.scripted_server import DONE, STREAM_HEAD, Step, chunk, event, plain, said
from tests.remote.test_bad_servers import Sink

YES_NO = ConstraintSpec("gbnf", 'root ::= "yes" | "no"')


def test_pieces_come_in_order_and_then_the_result(remote: Open) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    script: list[Step] = [STREAM_HEAD, chunk(content="Hel"), chunk(content="lo"), chunk(finish="stop")]
    _, responder = remote([*script, event({"choices": [], "usage": usage}), DONE])
    *pieces, done = events(responder, sampling=SamplingParams(seed=3))
    assert pieces == [TextPiece("Hel"), TextPiece("lo")]
    assert isinstance(done, Done)
    result = done.result
    assert (result.text, result.finish, result.seed) == ("Hello", "stop", 3)
    assert (result.usage.prompt_tokens, result.usage.cached_ram_tokens, result.usage.completion_tokens) == (9, 4, 2)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_comes_apart_from_the_text_whatever_the_field_is_called(remote: Open, field: str) -> None:
    _, responder = remote([STREAM_HEAD, chunk(**{field: "Hm."}), chunk(content="Yes"), chunk(finish="stop"), DONE])
    assert events(responder)[:2] == [ReasoningPiece("Hm."), TextPiece("Yes")]


def test_reasoning_that_the_server_leaves_in_the_text_is_taken_out(remote: Open) -> None:
    _, responder = remote(said("<thi", "nk>\nHm.\n</th", "ink>\n\nYes"))
    result = ask(responder)
    assert (result.reasoning, result.text) == ("Hm.", "Yes")


def test_a_constrained_answer_is_validated_here_whatever_the_server_did(remote: Open) -> None:
    server, responder = remote(said("yes"), said("maybe"), owner="llamacpp")
    assert ask(responder, constraint=YES_NO).text == "yes"
    assert server.bodies[0]["grammar"] == YES_NO.source
    with pytest.raises(InvalidOutputError):
        ask(responder, constraint=YES_NO)


def test_a_constraint_that_the_server_cannot_enforce_is_a_warning_before_the_answer(remote: Open) -> None:
    _, responder = remote(said("no"), owner="library")
    first = events(responder, constraint=YES_NO)[0]
    assert isinstance(first, WarningRaised)
    assert first.warning.message == ("Ollama cannot enforce a grammar: the output is only checked at its end")


def test_a_begun_answer_is_not_repeated_where_the_server_repeats_it(remote: Open) -> None:
    begun = replace(request(), prefill="Once upon")
    for pieces, rest in [
        (("On", "ce up", "on a", " time"), " a time"),
        (("Once", " more"), "Once more"),
        ((" a",), " a"),
    ]:
        _, responder = remote(said(*pieces), owner="llamacpp")
        assert "".join(e.text for e in responder.respond(begun) if isinstance(e, TextPiece)) == rest


def test_a_server_that_counts_no_tokens_is_a_warning(remote: Open) -> None:
    _, responder = remote([STREAM_HEAD, chunk(content="a"), chunk(finish="stop"), DONE])
    assert [w.code for w in ask(responder).warnings] == ["no_usage"]


def test_a_refused_setting_is_learned_once(remote: Open) -> None:
    refusal = plain(400, {"error": {"message": "Unsupported parameter: 'seed' is not supported", "param": "seed"}})
    server, responder = remote(refusal, said("a"))
    assert [w.code for w in ask(responder).warnings] == ["unsupported_seed"]
    assert [w.code for w in ask(responder).warnings] == ["unsupported_seed"]
    assert ["seed" in body for body in server.bodies] == [True, False, False]


def test_a_refused_stop_string_is_an_error_since_the_answer_would_be_another(remote: Open) -> None:
    _, responder = remote(plain(400, {"error": {"message": "Unsupported parameter: 'stop'", "param": "stop"}}))
    with pytest.raises(RemoteError, match="'stop'"):
        ask(responder, stop=("x",))


def test_servers_are_recognized_by_what_they_say_of_their_models(remote: Open) -> None:
    for owner, title in [("vllm", "vLLM"), ("llamacpp", "llama-server"), ("sglang", "SGLang"), ("library", "Ollama")]:
        _, responder = remote(owner=owner)
        assert responder.info.details["server"] == title
    _, responder = remote(gets={"/api/version": {"version": "0.9"}})
    assert responder.info.details["server"] == "Ollama"


def test_a_server_is_asked_for_its_kind_once(remote: Open, tmp_path: Path) -> None:
    from localrun.remote.responder import RemoteResponder

    server, first = remote(gets={"/props": {"default_generation_settings": {"n_ctx": 777}}})
    assert first.info.context_limit == 777
    server.gets.clear()
    second = RemoteResponder(engine_settings(server.url))
    assert (second.info.context_limit, second.info.details["server"]) == (777, "llama-server")
    second.close()


def test_the_finish_says_why(remote: Open) -> None:
    stop_string = [STREAM_HEAD, chunk(content="a"), event({"choices": [{"finish_reason": "stop", "stop_reason": "B"}]})]
    length = said("a", finish="length")
    _, responder = remote([*stop_string, DONE], length, length, said("a", finish="content_filter"))
    result = ask(responder, stop=("B",))
    assert (result.finish, result.stop) == ("stop_string", "B")
    assert ask(responder, max_tokens=1).finish == "length"
    assert ask(responder).finish == "context"
    assert [w.code for w in ask(responder).warnings] == ["content_filter"]


def test_a_batch_keeps_as_many_in_flight_as_the_engine_allows(remote: Open) -> None:
    slow: list[Step] = [STREAM_HEAD, 0.05, *said("a")[1:]]
    server, responder = remote(slow, settings={"parallel": 3})
    sink = Sink(9)
    for _ in range(9):
        responder.start(request(), sink)
    assert all(item.result.text == "a" for item in sink.wait())
    assert server.most_in_flight == 3


def test_a_dead_server_ends_a_batch_with_what_was_finished(remote: Open) -> None:
    server, responder = remote(said("a"), [STREAM_HEAD, "drop"], settings={"parallel": 1, "retries": 1})
    sink = Sink(3)
    for _ in range(3):
        responder.start(request(), sink)
    ends = sink.wait()
    assert [type(end).__name__ for end in ends] == ["Done", "RemoteError", "RemoteError"]
    assert server.in_flight == 0


def test_prompts_are_counted_by_the_server(remote: Open) -> None:
    usage = {"prompt_tokens": 31, "completion_tokens": 1}
    server, responder = remote([STREAM_HEAD, chunk(content="a", usage=usage), chunk(finish="length"), DONE])
    assert responder.count_tokens(request(constraint=YES_NO)) == 31
    assert server.bodies[0]["max_tokens"] == 1


# settings ---------------------------------------------------------------------------------------------------------


def test_an_engine_of_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '[engines.big]\nbase_url = "https://gpu.example:8443/v1/"\napi_key_env = "BIG_KEY"\nparallel = 32\n'
        'models = {"small" = "org/Small-1B"}\nread_timeout = 30\n'
    )
    config = Config(file=file)
    with pytest.raises(UsageError, match="takes its key from BIG_KEY, which is not set"):
        engine_settings("big", config)
    monkeypatch.setenv("BIG_KEY", "k")
    settings = engine_settings("big", config)
    assert (settings.base_url, settings.key, settings.parallel) == ("https://gpu.example:8443/v1", "k", 32)
    assert settings.models == {"small": "org/Small-1B"}
    assert settings.read_timeout_s == 30


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "has no base_url"),
        ({"base_url": "ftp://x"}, "not an http or https URL"),
        ({"base_url": "http://x", "colour": 1}, "no setting 'colour'"),
        ({"base_url": "http://x", "parallel": "many"}, "not of the right type"),
        ({"base_url": "http://x", "parallel": 0}, "it is above 0"),
        ({"base_url": "http://x", "dialect": "klingon"}, "dialect is 'klingon'"),
        ({"base_url": "http://u:p@x"}, "user name or password"),
        ({"base_url": "http://x:99999"}, "Port out of range"),
    ],
)
def test_nonsense_in_the_configuration_is_a_usage_error(tmp_path: Path, table: dict[str, Any], message: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[engines.e]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()))
    with pytest.raises(UsageError, match=message):
        engine_settings("e", Config(file=file))


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("http://h:1/v1", "http://h:1/v1"),
        ("http://h:1/v1/chat/completions", "http://h:1/v1"),
        ("https://h/api/openai", "https://h/api/openai"),
    ],
)
def test_addresses_are_taken_as_people_write_them(given: str, base: str) -> None:
    assert engine_settings(given).base_url == base


def test_an_unknown_name_says_how_to_describe_it() -> None:
    with pytest.raises(UsageError, match="no engine 'gpu' is known") as caught:
        engine_settings("gpu", Config())
    assert "[engines.gpu]" in (caught.value.hint or "")
