"""Who may ask, and how much."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from localrun.errors import ConstraintError, DoesNotFitError, EngineError, UsageError
from localrun.serve.app import ServeOptions
from localrun.serve.failures import as_api_error
from localrun.serve.fields import MAX_DEPTH, parse_object
from localrun.serve.guard import Rules
from localrun.serve.server import Address, check_access
from tests.serve.conftest import Held, Server

Start = Callable[..., Server]
CHAT = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "Hi"}]}


def status(server: Server, body: Any = ASK, **headers: str) -> int:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = {"Content-Type": "application/json", **{key.replace("_", "-"): value for key, value in headers.items()}}
    return httpx2.post(server.url + CHAT, content=content, headers=head, timeout=30).status_code


def test_only_names_of_this_machine_are_answered_without_a_key(server: Start) -> None:
    running = server()
    port = running.url.rsplit(":", 1)[1]
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "LOCALHOST", "localhost."):
        assert status(running, Host=host) == 200, host
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "",
        "[",
        "2130706433",
    ):
        assert status(running, Host=host) in (400, 403), host


def test_with_a_key_any_name_will_do(server: Start) -> None:
    running = server(rules=Rules(key="k"))
    assert status(running, Host="my-box.lan", Authorization="Bearer k") == 200


def test_web_pages_of_other_sites_are_refused_unless_allowed(server: Start) -> None:
    running = server(rules=Rules(origins=frozenset({"https://app.example"})))
    assert status(running, Origin="https://evil.example") == 403
    assert status(running, Origin="null") == 403
    assert status(running, Origin=running.url) == 200
    answer = httpx2.post(running.url + CHAT, json=ASK, headers={"Origin": "https://app.example"})
    assert answer.headers["access-control-allow-origin"] == "https://app.example"


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization", "Content-Type", "Accept", "Cookie"])
def test_a_damaged_header_is_refused_as_an_error_of_the_client(steady_server: Server, name: str) -> None:
    with httpx2.Client(base_url=steady_server.url, timeout=30) as client:
        for value in (b"http://[::bad", b"[", b"http://]", b"//[", b"\xb2\xff", b"http://a:b:c", b"%"):
            headers = {b"Content-Type": b"application/json", name.encode(): value}
            for method, url in (("POST", CHAT), ("OPTIONS", CHAT), ("GET", "/v1/models")):
                answer = client.request(method, url, json=ASK, headers=headers)
                assert answer.status_code < 500, value
                if name == "Origin":
                    assert answer.status_code == 403, value
                    assert answer.json()["error"]["code"] == "origin_not_allowed"
    assert status(steady_server) == 200


def test_a_length_that_is_no_number_is_refused(steady_server: Server) -> None:
    port = int(steady_server.url.rsplit(":", 1)[1])
    for length in (b"\xb2", b"-1", b"1e9", b"9" * 5000):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + length)
            client.sendall(b"\r\n\r\n{}")
            assert client.recv(100).startswith(b"HTTP/1.1 4")


def test_a_key_may_be_any_bytes(server: Start) -> None:
    running = server(rules=Rules(key="k\udcff"))
    assert status(running, Authorization="Bearer k") == 401
    answer = httpx2.get(running.url + "/v1/models", headers={b"Authorization": b"Bearer k\xff"})
    assert answer.status_code == 200


def test_a_browser_may_ask_first(server: Start) -> None:
    running = server(rules=Rules(key="k", origins=frozenset({"https://app.example"})))
    preflight = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    answer = httpx2.request("OPTIONS", running.url + CHAT, headers=preflight)
    assert answer.status_code == 204
    assert "Authorization" in answer.headers["access-control-allow-headers"]
    assert httpx2.request("OPTIONS", running.url + CHAT, headers={"Origin": "https://evil.example"}).status_code == 403


def test_a_form_of_a_web_page_is_no_request(server: Start) -> None:
    running = server()
    assert status(running, Content_Type="text/plain") == 415
    assert status(running, Content_Type="application/x-www-form-urlencoded") == 415


def test_large_bodies_are_refused_with_and_without_a_length(server: Start) -> None:
    running = server(rules=Rules(max_body=1000))
    large = json.dumps({"messages": [{"role": "user", "content": "x" * 2000}]}).encode()
    assert status(running, large) == 413

    def pieces():  # type: ignore[no-untyped-def]
        yield from (large[i : i + 100] for i in range(0, len(large), 100))

    answer = httpx2.post(running.url + CHAT, content=pieces(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_a_body_that_does_not_come_is_given_up(server: Start) -> None:
    running = server(rules=Rules(body_timeout_s=0.1))
    port = int(running.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port)) as client:
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
        )
        client.sendall(head.encode() + b'{"mes')
        assert client.recv(100).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[1]",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b"\xff\xfe",
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' * 100_000,
        b"[" * 100_000,
        b'{"messages":' + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1) + b"}",
        b'{"messages":[{"role":"user","content":"\\ud83d"}]}',
    ],
)
def test_bodies_that_are_no_sound_json_are_400(steady_server: Server, body: bytes) -> None:
    assert status(steady_server, body) == 400
    assert status(steady_server) == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": "Hi"},
        {"messages": [7]},
        {"messages": [{"role": "alien", "content": "Hi"}]},
        {"messages": [{"role": "user"}]},
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}
            ]
        },
        {**ASK, "temperature": "hot"},
        {**ASK, "temperature": -1},
        {**ASK, "temperature": 1e400 if False else 10**400},
        {**ASK, "max_tokens": 1.5},
        {**ASK, "max_tokens": -2},
        {**ASK, "n": 0},
        {**ASK, "n": 1000},
        {**ASK, "stop": [""]},
        {**ASK, "stop": ["x"] * 50},
        {**ASK, "stream": "yes"},
        {**ASK, "stream_options": {"include_usage": True}},
        {**ASK, "logit_bias": {"a": 1}},
        {**ASK, "logit_bias": {"1": 1000}},
        {**ASK, "top_logprobs": 3},
        {**ASK, "samplers": ["top_k", "top_k"]},
        {**ASK, "samplers": ["magic"]},
        {**ASK, "response_format": {"type": "yaml"}},
        {**ASK, "response_format": {"type": "json_schema"}},
        {**ASK, "response_format": {"type": "json_object"}, "regex": "a"},
        {**ASK, "choices": [""]},
        {**ASK, "tool_choice": "required"},
        {**ASK, "tools": [{"type": "web_search"}]},
        {**ASK, "tools": [{"type": "function", "function": {}}]},
        {**ASK, "chat_template_kwargs": {"template": "{{ 1 }}"}},
        {**ASK, "continue_final_message": True},
    ],
)
def test_fields_that_make_no_sense_are_400_and_named(steady_server: Server, body: dict[str, Any]) -> None:
    answer = steady_server.post(CHAT, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["error"]["message"]


def test_a_template_in_a_request_is_refused_and_never_run(server: Start) -> None:
    running = server()
    body = {**ASK, "chat_template": "{{ ''.__class__.__mro__ }}", "template": "x"}
    answer = running.post(CHAT, body).json()
    assert len(answer["warnings"]) == 2
    assert answer["choices"][0]["message"]["content"] == "You said: Hi"


def test_unknown_paths_and_methods_are_errors_in_the_same_form(server: Start) -> None:
    running = server()
    for method, path, code in [
        ("GET", "/nothing", 404),
        ("GET", CHAT, 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/models/../../etc/passwd", 404),
    ]:
        answer = httpx2.request(method, running.url + path, json={} if method == "POST" else None)
        assert answer.status_code == code
        assert answer.json()["error"]["message"]


def test_another_address_demands_a_key() -> None:
    for host in ("0.0.0.0", "192.168.1.7", "::", "my-box.lan"):
        with pytest.raises(UsageError, match="no API key is set"):
            check_access(ServeOptions(), Address(host))
        check_access(ServeOptions(rules=Rules(key="k")), Address(host))
    for host in ("127.0.0.1", "::1", "localhost", "127.0.0.2"):
        check_access(ServeOptions(), Address(host))


def test_others_go_on_while_a_large_body_is_read(server: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    running = server()
    read = Held(parse_object)
    monkeypatch.setattr("localrun.serve.app.parse_object", read)
    with read.held(), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(status, running, {**ASK, "user": "x" * 100_000})
        assert read.begun.wait(20)
        assert httpx2.get(f"{running.url}/v1/models", timeout=20).status_code == 200
        read.go_on.set()
        assert asked.result() == 200


def test_many_unknown_fields_are_counted_and_not_all_named(steady_server: Server) -> None:
    warnings = steady_server.post(CHAT, {**ASK, **{f"field{i:03}": 1 for i in range(100)}}).json()["warnings"]
    assert [w["message"] for w in warnings[-2:]] == [
        "the field 'field031' is not known here",
        "68 more fields are not known here",
    ]


def test_no_error_tells_a_client_of_the_command_line() -> None:
    for error in (
        ConstraintError("'not' cannot be enforced", hint="with --schema-lenient it is checked at the end instead"),
        EngineError("no token is left", hint="allow some --logit-bias bans"),
        DoesNotFitError("it does not fit", hint="take a smaller --ctx"),
        UsageError("logit-bias names the token id 9", hint="localrun tokenize shows token ids"),
    ):
        told = as_api_error(error).message
        assert told.startswith(error.message)
        assert "--" not in told
        assert "localrun" not in told
    assert as_api_error(UsageError("mirostat tau is -1, outside [0, 100]")).param == "mirostat_tau"
    assert as_api_error(UsageError("no such thing", hint="do this")).message == "no such thing (do this)"
