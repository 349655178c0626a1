"""The server on the real engine: the same texts, constraints that hold, sequences that are freed."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import jsonschema
import openai
import pytest

from localrun.chat.messages import Message
from localrun.chat.template import ChatTemplate
from localrun.engine.engine import Engine
from localrun.local import LocalResponder
from localrun.params import ConstraintSpec, GenerationParams, SamplingParams
from localrun.remote import open_remote
from localrun.responder import Done, Request, Responder, Result
from tests.sdist import template_file
from tests.serve.conftest import Server, until
from tests.serve.scripted_model import TEMPLATE
from tests.serve.test_tools import TOOLS

pytestmark = pytest.mark.model

GREEDY = SamplingParams(temperature=0)


def ask(server: Server, text: str, **more: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    return server.client().chat.completions.create(model="smollm2", messages=messages, temperature=0, **more)  # type: ignore[call-overload]


def responder(server: Server) -> LocalResponder:
    model = server.running.service.pool.loaded[0].model
    assert isinstance(model, LocalResponder)
    return model


def engine(server: Server) -> Engine:
    worker = responder(server)._worker
    assert worker is not None
    return worker._engine


def answer(responder: Responder, request: Request) -> Result:
    *_, last = responder.respond(request)
    assert isinstance(last, Done)
    return last.result


def direct(server: Server, request: Request) -> Result:
    return answer(responder(server), request)


def test_answers_beside_each_other_are_not_mixed_up(real_server: Server) -> None:
    """Each is held to a text of its own: what the model would say by itself depends on rounding in the batch."""

    def asked(number: int) -> str:
        grammar = f'root ::= "It is {number}, " ("yes" | "no") " and {number} again."'
        told = ask(real_server, f"Is it {number}?", extra_body={"grammar": grammar})
        return str(told.choices[0].message.content)

    with ThreadPoolExecutor(12) as pool:
        texts = list(pool.map(asked, range(12)))
    for number, text in enumerate(texts):
        assert text in (f"It is {number}, {word} and {number} again." for word in ("yes", "no"))


def test_a_stream_has_whole_characters_and_counts_as_the_whole_answer_does(real_server: Server) -> None:
    text = "héllo 🙂 👩‍👩‍👧‍👦 日本語"
    body = {"grammar": f'root ::= "{text}"'}
    whole = ask(real_server, "Count to five.", extra_body=body)
    chunks = list(
        ask(real_server, "Count to five.", extra_body=body, stream=True, stream_options={"include_usage": True})
    )
    pieces = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(pieces) == text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 20, "the second time the prompt is known"


def test_a_schema_holds(real_server: Server) -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green"]}, "size": {"type": "integer", "minimum": 3, "maximum": 5}},
        "required": ["colour", "size"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    told = json.loads(ask(real_server, "A thing?", response_format=form, max_tokens=60).choices[0].message.content)
    assert told["colour"] in ("red", "green")
    assert 3 <= told["size"] <= 5


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "strng"}, "/type"),
        ({"prefixItems": 5}, "/prefixItems"),
        ({"properties": []}, "/properties"),
        ({"$ref": "#/x/a", "x": {"a": {"if": 5}}}, "/x/a/if"),
        ({"pattern": "(?=a)"}, "/pattern"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_400_by_its_place(
    real_server: Server, monkeypatch: pytest.MonkeyPatch, schema: dict[str, Any], pointer: str
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match=f"at {pointer}: ") as caught:
        ask(real_server, "A thing?", response_format=form, max_tokens=60)
    assert caught.value.param == "response_format.json_schema.schema"
    assert "--" not in caught.value.message
    write_calls_as(real_server, monkeypatch, ChatTemplate(TEMPLATE))
    parameters = {"type": "object", **{key: value for key, value in schema.items() if key != "type"}}
    parameters = {"type": "object", "properties": {"a": schema}} if "type" in schema else parameters
    tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": parameters}}]
    with pytest.raises(openai.BadRequestError, match=f"{pointer}: ") as caught:
        ask(real_server, "A thing?", tools=tools, tool_choice="required", max_tokens=60)
    assert caught.value.param == "tools[0].function.parameters"
    assert ask(real_server, "Hi", max_tokens=2).usage.completion_tokens == 2


def test_logprobs_are_those_of_the_model(real_server: Server) -> None:
    entries = ask(real_server, "Hi", logprobs=True, top_logprobs=3, max_tokens=5).choices[0].logprobs.content
    assert len(entries) == 5
    for entry in entries:
        assert entry.logprob == entry.top_logprobs[0].logprob, "greedy takes the most likely one"
        assert sum(math.exp(top.logprob) for top in entry.top_logprobs) <= 1 + 1e-9
        assert [t.logprob for t in entry.top_logprobs] == sorted((t.logprob for t in entry.top_logprobs), reverse=True)


def test_a_prompt_that_is_too_long_is_400_with_both_numbers(real_server: Server) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match=r"3,0\d\d tokens, the context holds 1,024"):
            list(ask(real_server, "word " * 3000, stream=stream))


def write_calls_as(real_server: Server, monkeypatch: pytest.MonkeyPatch, template: ChatTemplate) -> None:
    prompts = responder(real_server)._prompts
    monkeypatch.setitem(prompts.__dict__, "template", template)
    monkeypatch.setattr(prompts, "_encoder", None)


def test_a_tool_must_be_called_with_arguments_that_fit(real_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    write_calls_as(real_server, monkeypatch, ChatTemplate(TEMPLATE))
    told = ask(real_server, "Weather in Rome?", tools=TOOLS, tool_choice="required", max_tokens=60)
    [call] = told.choices[0].message.tool_calls
    arguments = json.loads(call.function.arguments)
    assert call.function.name in ("weather", "time")
    assert call.function.name == "time" or isinstance(arguments["city"], str)


FORECAST = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "d", "maxLength": 12},
        "days": {"type": "integer", "description": "d", "minimum": 1, "maximum": 14},
        "unit": {"type": "string", "description": "d", "enum": ["metric", "imperial"]},
        "place": {
            "type": "object",
            "description": "d",
            "properties": {"north": {"type": "boolean"}},
            "required": ["north"],
            "additionalProperties": False,
        },
    },
    "required": ["city", "days", "unit", "place"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "name",
    [
        "Qwen3-Coder",
        "GLM-4.7-Flash",
        "google-gemma-4-31B-it",
        "LFM2.5-8B-A1B",
        "mistralai-Mistral-Nemo-Instruct-2407",
        "openai-gpt-oss-120b",
    ],
)
def test_a_call_is_valid_in_every_kind_of_form(real_server: Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    source = template_file(name).read_text(encoding="utf-8")
    write_calls_as(real_server, monkeypatch, ChatTemplate(source, bos_token="<|im_start|>", eos_token="<|im_end|>"))
    tools = [
        {"type": "function", "function": {"name": called, "description": "d", "parameters": FORECAST}}
        for called in ("weather", "weather_soon")
    ]
    told = ask(real_server, "Weather in Rome?", tools=tools, tool_choice="required", max_tokens=150)
    [call] = told.choices[0].message.tool_calls
    assert told.choices[0].finish_reason == "tool_calls"
    assert call.function.name in ("weather", "weather_soon")
    jsonschema.validate(json.loads(call.function.arguments), FORECAST)


def test_a_client_that_goes_away_frees_its_sequence(real_server: Server) -> None:
    stream = ask(real_server, "Tell me a long story.", max_tokens=900, stream=True)
    next(iter(stream))
    assert len(engine(real_server).everybody()) == 1
    [sequence] = engine(real_server).everybody()
    stream.close()
    until(lambda: sequence.cancelled)
    n_generated = sequence.n_generated
    until(lambda: not engine(real_server).everybody())
    assert sequence.n_generated - n_generated <= 1, "at most the step that was running"


def test_our_remote_engine_and_our_server_understand_each_other(real_server: Server) -> None:
    remote = open_remote(real_server.url)
    assert remote.info.details["server"] == "localrun serve"
    assert remote.info.context_limit == 1024
    question = (Message("user", "Name a fruit."),)
    spec = ConstraintSpec("gbnf", 'root ::= "A pear, please."')
    request = Request(GenerationParams(GREEDY, 12, constraint=spec), question)
    here, there = direct(real_server, request), answer(remote, request)
    assert there.text == here.text == "A pear, please."
    assert (there.finish, there.usage.prompt_tokens) == (here.finish, here.usage.prompt_tokens)
    assert there.warnings == ()
    begun = replace(request, prefill="A pear")
    assert answer(remote, begun).text == direct(real_server, begun).text == ", please."
    choice = ConstraintSpec("choice", ("apple", "pear"))
    assert answer(remote, Request(GenerationParams(GREEDY, constraint=choice), question)).text in ("apple", "pear")
    result = answer(remote, Request(GenerationParams(GREEDY, 20, stop=(" ",)), question))
    assert (result.finish, result.stop) == ("stop_string", " ")
    assert " " not in result.text
    remote.close()
