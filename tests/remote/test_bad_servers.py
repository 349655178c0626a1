"""Whatever a server does, the caller gets the whole text, or one clear error."""

from __future__ import annotations

import threading
import time

import pytest

from localrun.errors import ContextOverflowError, LocalrunError, ModelNotFoundError, RemoteError
from localrun.responder import TextPiece
from tests.remote.conftest import Open, ask, events, request
from tests.remote.scripted_server import DONE, STREAM_HEAD, chunk, event, plain, said


def test_a_stream_that_is_dropped_before_any_text_is_asked_for_again(remote: Open) -> None:
    server, responder = remote(["drop"], [STREAM_HEAD, "drop"], [STREAM_HEAD], said("Hello", " you"))
    assert ask(responder).text == "Hello you"
    assert len(server.received) == 4


def test_a_stream_that_is_dropped_after_text_is_an_error_and_never_a_short_answer(remote: Open) -> None:
    server, responder = remote([STREAM_HEAD, chunk(content="Half"), "drop"])
    with pytest.raises(RemoteError, match=r"broke off.*in the middle of the answer"):
        ask(responder)
    assert len(server.received) == 1


def test_a_batch_asks_again_for_an_answer_that_broke_off_in_the_middle(remote: Open) -> None:
    _, responder = remote([STREAM_HEAD, chunk(content="Half"), "drop"], said("Whole"))
    sink = Sink(1)
    responder.start(request(), sink)
    [item] = sink.wait()
    assert item.result.text == "Whole"


def test_a_stream_without_an_end_is_an_error(remote: Open) -> None:
    _, responder = remote([STREAM_HEAD, chunk(content="Half")])
    with pytest.raises(RemoteError, match="before the answer did"):
        ask(responder)


def test_429_is_waited_out_as_long_as_the_server_says(remote: Open) -> None:
    busy = plain(429, {"error": {"message": "busy"}}, Retry_After="0.2")
    server, responder = remote(busy, busy, said("Now"))
    started = time.monotonic()
    assert ask(responder).text == "Now"
    assert time.monotonic() - started >= 0.4
    assert len(server.received) == 3


def test_a_pause_longer_than_minutes_is_an_error_at_once(remote: Open) -> None:
    _, responder = remote(plain(429, {"error": {"message": "quota used up"}}, Retry_After="86400"))
    with pytest.raises(RemoteError, match="429: quota used up"):
        ask(responder)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529])
def test_server_errors_are_tried_again_and_reported_in_the_end(remote: Open, status: int) -> None:
    server, responder = remote(plain(status, b"<html><b>bad gateway</b></html>"), settings={"retries": 2})
    with pytest.raises(RemoteError, match=f"error {status}: bad gateway"):
        ask(responder)
    assert len(server.received) == 3


def test_characters_cut_in_two_between_packets_arrive_whole(remote: Open) -> None:
    data = b'data: {"choices":[{"delta":{"content":"' + "é🙂日".encode() + b'"}}]}\n\n'
    script = [STREAM_HEAD, *(part for i in range(len(data)) for part in (data[i : i + 1],)), chunk(finish="stop"), DONE]
    _, responder = remote(script)
    assert ask(responder).text == "é🙂日"


def test_characters_cut_in_two_between_events_are_joined(remote: Open) -> None:
    half = [
        b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\ude42b"}}]}\n\n',
    ]
    _, responder = remote([STREAM_HEAD, *half, chunk(finish="stop"), DONE])
    pieces = [e.text for e in events(responder) if isinstance(e, TextPiece)]
    assert pieces == ["a", "🙂b"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'data: {"choices":[{"delta":{"content":"\xf0\x9f"}}]}\n\n', "not UTF-8: 0xf0"),
        (b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n', "half a character"),
        (b'data: {"choices":[{"delta":{"content":"\\ude42"}}]}\n\n', "half a character"),
        (b"data: {nope}\n\n", "not JSON"),
        (b"data: 17\n\n", "where an object was expected"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "not JSON|nested too deeply"),
        (event({"choices": "none"}), "list of choices"),
        (event({"choices": [7]}), "where a choice was expected"),
        (event({"choices": [{"delta": "x"}]}), "part of a message"),
        (event({"choices": [{"delta": {"content": 7}}]}), "where a text was expected"),
    ],
)
def test_damage_inside_a_stream_is_an_error_that_shows_it(remote: Open, data: bytes, message: str) -> None:
    _, responder = remote([STREAM_HEAD, data, chunk(finish="stop"), DONE])
    with pytest.raises(RemoteError, match=message):
        ask(responder)


def test_replacement_characters_of_the_server_are_a_warning(remote: Open) -> None:
    _, responder = remote(said("a\ufffd", "\ufffdb"))
    assert [w.code for w in ask(responder).warnings] == ["damaged_text"]


def test_an_error_inside_a_stream_is_an_error(remote: Open) -> None:
    _, responder = remote([STREAM_HEAD, chunk(content="a"), event({"error": {"message": "CUDA is gone"}})])
    with pytest.raises(RemoteError, match="CUDA is gone"):
        ask(responder)


def test_a_server_that_stalls_is_given_up_after_its_time(remote: Open) -> None:
    _, responder = remote([STREAM_HEAD, chunk(content="a"), "hang"], settings={"read_timeout_s": 0.2})
    with pytest.raises(RemoteError, match=r"said nothing for 0\.2 s"):
        ask(responder)


@pytest.mark.parametrize("script", [["hang"], [STREAM_HEAD, "hang"], [STREAM_HEAD, chunk(content="So far"), "hang"]])
def test_stop_ends_every_wait_and_keeps_the_text(remote: Open, script: list[bytes | str]) -> None:
    server, responder = remote(script)
    stopper = threading.Thread(
        target=lambda: (_until(lambda: server.in_flight == 1), time.sleep(0.05), responder.stop())
    )
    stopper.start()
    result = ask(responder)
    stopper.join()
    assert result.finish == "interrupted"
    assert result.text == ("So far" if len(script) == 3 else "")


def test_stop_ends_a_pause_between_tries(remote: Open) -> None:
    _, responder = remote(plain(503, {"error": "loading"}, Retry_After="60"))
    threading.Timer(0.2, responder.stop).start()
    assert ask(responder).finish == "interrupted"


def test_a_timeout_keeps_the_text(remote: Open) -> None:
    _, responder = remote([STREAM_HEAD, chunk(content="So far"), "hang"])
    result = ask(responder, timeout_s=0.3)
    assert (result.finish, result.text) == ("timeout", "So far")


def test_closing_the_iterator_closes_the_connection(remote: Open) -> None:
    server, responder = remote([STREAM_HEAD, chunk(content="a"), "hang"])
    running = responder.respond(request())
    assert next(running) == TextPiece("a")
    running.close()
    _until(lambda: server.in_flight == 0)


def test_a_web_page_is_no_engine(remote: Open) -> None:
    _, responder = remote(plain(200, b"<html>Welcome to nginx</html>", Content_Type="text/html"))
    with pytest.raises(RemoteError, match="does not stream: it sent text/html"):
        ask(responder)


def test_a_dead_address_fails_at_once(remote: Open) -> None:
    from localrun.remote import open_remote

    with pytest.raises(RemoteError, match="no server answers at"):
        open_remote("http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            {"type": "exceed_context_size_error", "message": "too long", "n_prompt_tokens": 9031, "n_ctx": 4096},
            ContextOverflowError,
            "9,031 tokens, the remote context holds 4,096",
        ),
        (
            {"message": "This model's maximum context length is 4096 tokens. However, your request has requested 9031"},
            ContextOverflowError,
            "9,031 tokens, the remote context holds 4,096",
        ),
        (
            {"message": "The input (9031 tokens) is longer than the model's context length (4096 tokens)."},
            ContextOverflowError,
            "9,031 tokens, the remote context holds 4,096",
        ),
        ({"message": "the moon is full"}, RemoteError, "error 400: the moon is full"),
    ],
)
def test_errors_of_other_servers_become_ours(
    remote: Open, error: dict[str, object], kind: type[LocalrunError], message: str
) -> None:
    _, responder = remote(plain(400, {"error": error}))
    with pytest.raises(kind, match=message):
        ask(responder)


def test_a_key_that_is_refused_is_never_shown(remote: Open) -> None:
    _, responder = remote(plain(401, {"error": {"message": "no"}}), settings={"key": "sk-secret"})
    with pytest.raises(RemoteError, match="refuses the key") as caught:
        ask(responder)
    assert "secret" not in f"{caught.value}{caught.value.hint}{responder.info}{responder._settings}"


def test_a_model_that_is_not_there_is_said_with_near_matches(remote: Open) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        remote(owner="vllm", models=("qwen3-8b", "llama-3"), model="qwen3-4b")
    assert "qwen3-8b" in (caught.value.hint or "")


def _until(condition) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Sink:
    """Collects what ends each of `n` answers."""

    def __init__(self, n: int) -> None:
        self.items: list = []
        self._n = n
        self._full = threading.Event()

    def put(self, item) -> None:  # type: ignore[no-untyped-def]
        self.items.append(item[1])
        if len(self.items) == self._n:
            self._full.set()

    def wait(self) -> list:
        assert self._full.wait(20)
        return self.items
