"""Whatever JSON value stands in a field that a server sends, the caller gets an answer or one clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localrun.errors import LocalrunError, RemoteError
from localrun.remote.capabilities import Memory, discover
from localrun.remote.reading import Reading
from localrun.remote.wire import EndOfStream
from tests.odd_values import variants
from tests.remote.conftest import Open, ask, request
from tests.remote.scripted_server import DONE, STREAM_HEAD, event, plain, said

FULL_CHUNK: dict[str, Any] = {
    "model": "tiny",
    "choices": [
        {
            "index": 0,
            "delta": {"role": "assistant", "reasoning_content": "hm", "content": "Hi"},
            "finish_reason": "stop",
            "stop_reason": "x",
        }
    ],
    "usage": {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 1},
    },
    "timings": {"cache_n": 1},
    "prompt_progress": {"processed": 1, "total": 2, "cache": 0},
    "error": None,
}
FULL_ERROR: dict[str, Any] = {
    "error": {"message": "m", "type": "t", "code": 400, "param": "top_k", "n_prompt_tokens": 5000, "n_ctx": 4096}
}
FULL_COMPLAINT: dict[str, Any] = {"detail": [{"loc": ["body", "top_k"], "msg": "not permitted", "type": "t"}]}


def test_every_field_of_a_chunk_may_hold_anything() -> None:
    for chunk in variants(FULL_CHUNK):
        if not isinstance(chunk, dict):
            continue
        asked = request(stop=("x",))
        reading = Reading(asked, model="tiny", seed=1, context_limit=0, constraint=None)
        try:
            for _event in reading.take([chunk, EndOfStream()]):
                continue
            result = reading.done().result
        except LocalrunError as error:
            f"{error.message}{error.hint}".encode()  # it can be printed
            continue
        json.dumps([result.text, result.finish, result.model.name], ensure_ascii=False).encode()


def test_every_field_of_an_error_may_hold_anything(remote: Open) -> None:
    _, responder = remote(said("Hi"))
    for body in variants(FULL_ERROR) + variants(FULL_COMPLAINT):
        for status in (400, 401, 404):
            failure = responder._connection._failure(status, {}, json.dumps(body).encode(), {"top_k": 1})
            error = failure if isinstance(failure, LocalrunError) else getattr(failure, "error", None)
            assert isinstance(error, LocalrunError)
            f"{error.message}{error.hint}".encode()  # it can be printed


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": {"a": 1}, "code": [1], "type": {}}},
        {"error": {"message": "x", "type": [1, 2, 3]}},
        {"error": {"message": "x", "n_prompt_tokens": "x", "n_ctx": [1]}},
        {"error": {"message": "maximum context length is , requested ,"}},
        {"detail": [{"loc": 7, "msg": []}]},
    ],
)
def test_an_odd_error_is_an_error_of_the_server(remote: Open, body: dict[str, Any]) -> None:
    _, responder = remote(plain(400, body), [STREAM_HEAD, event({"error": body}), DONE])
    for _ in range(2):
        with pytest.raises(RemoteError, match=r"answered with error 400: .|ended the answer with an error: ."):
            ask(responder)


def test_an_odd_message_is_shown(remote: Open) -> None:
    _, responder = remote([STREAM_HEAD, event({"error": {"message": {"a": 1}}}), DONE])
    with pytest.raises(RemoteError, match=r'the server sent \{"a": 1\} where a message was expected'):
        ask(responder)


@pytest.mark.parametrize("page", ["/v1/models", "/props", "/api/v0/models", "/version"])
def test_every_page_that_tells_what_a_server_is_may_hold_anything(remote: Open, page: str, tmp_path: Path) -> None:
    dialect = {"/props": "llama-server", "/api/v0/models": "lm-studio"}.get(page)
    server, responder = remote(said("Hi"), settings={"dialect": dialect})
    entry = {"id": "tiny", "owned_by": "llamacpp", "max_model_len": 5}
    for content in variants({"data": [entry], "default_generation_settings": {"n_ctx": 5}, "version": "1"}):
        server.gets[page] = content
        try:
            found = discover(responder._connection, responder._settings, Memory(tmp_path / "none" / str(id(content))))
        except RemoteError:
            continue  # its list of models is none
        assert all(0 < n <= 2**53 for n in found.context.values())
        "".join(found.models).encode()


def test_a_page_that_is_nested_too_deeply_is_no_page(remote: Open) -> None:
    server, responder = remote(said("Hi"))
    server.gets["/v1/deep"] = b"[" * 200_000
    assert responder._connection.get("/deep") is None


def test_an_error_without_an_end_is_read_in_no_time(remote: Open) -> None:
    _, responder = remote(plain(400, b"<" * 1_000_000), plain(400, {"error": "maximum context length is 1 " * 40_000}))
    for _ in range(2):
        with pytest.raises(RemoteError, match="error 400"):
            ask(responder)


def test_a_date_that_no_clock_shows_is_no_pause(remote: Open) -> None:
    _, responder = remote(plain(503, {}, Retry_After="Mon, 01 Jan 0001 00:00:00 GMT"), said("Hi"))
    assert ask(responder).text == "Hi"
