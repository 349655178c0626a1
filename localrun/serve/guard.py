"""What is let in: hosts, origins, keys, sizes.

ASGI middleware around the whole application; knows headers and no endpoint. Invariants: without a key only this machine
itself is answered, by a name of this machine (a page on another site cannot reach us by rebinding its DNS name); keys
are compared in constant time; no more of a body is read than the limit.

Sources: RFC 9110 (Host, Origin), the WHATWG Fetch standard (CORS).
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from localrun.serve.failures import ApiError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_OPEN_PATHS = frozenset({"/health"})
"""Answered without a key: they tell nothing, and supervisors have none."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may ask, and how much."""

    key: str | None = None
    hosts: frozenset[str] = LOOPBACK
    """Names by which this server may be called while it asks for no key."""
    origins: frozenset[str] = frozenset()
    """Web pages that may call it; `*` for all."""
    max_body: int = 16 << 20
    body_timeout_s: float = 30.0


class Guard:
    """Answers what is refused itself, and passes the rest on."""

    def __init__(self, app: App, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get("origin")
        try:
            self._check(scope, headers, origin)
            if scope["method"] == "OPTIONS" and origin is not None:
                await _respond(send, 204, b"", self._cors(origin, preflight=True))
                return
            receive = await self._with_body(scope, headers, receive)
        except ApiError as error:
            extra = self._cors(origin) if origin is not None and self._allows(origin, headers) else []
            extra += [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
            await _respond(send, error.status, json.dumps(error.body).encode(), extra)
            return
        await self._app(scope, receive, self._answering(send, origin))

    def _check(self, scope: Scope, headers: MutableMapping[str, str], origin: str | None) -> None:
        server = scope.get("server")
        if server is not None and server[1] is None:
            return  # the Unix socket: its folder lets only this user in
        if self._rules.key is None:
            host = _hostname(headers.get("host", ""))
            if host not in self._rules.hosts:
                message = f"the host {host!r} is not one of this server; start it with an API key, or call it localhost"
                raise ApiError(403, message, kind="permission_error", code="host_not_allowed")
        if origin is not None and not self._allows(origin, headers):
            message = f"web pages of {origin[:200]!r} may not use this server; --allow-origin lets them"
            raise ApiError(403, message, kind="permission_error", code="origin_not_allowed")
        preflight = scope["method"] == "OPTIONS" and origin is not None
        if self._rules.key is not None and scope["path"] not in _OPEN_PATHS and not preflight:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            given = given.strip() if scheme.lower() == "bearer" else ""
            if not hmac.compare_digest(given.encode("latin-1"), self._rules.key.encode("utf-8", "surrogateescape")):
                raise ApiError(
                    401,
                    "the API key is missing or wrong",
                    kind="authentication_error",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )

    def _allows(self, origin: str, headers: MutableMapping[str, str]) -> bool:
        if origin in self._rules.origins or "*" in self._rules.origins:
            return True
        own = _netloc(origin)
        return own != "" and own == headers.get("host")

    def _cors(self, origin: str, *, preflight: bool = False) -> list[tuple[bytes, bytes]]:
        headers = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]
        if preflight:
            headers += [
                (b"access-control-allow-methods", b"GET, POST"),
                (b"access-control-allow-headers", b"Authorization, Content-Type"),
                (b"access-control-max-age", b"600"),
            ]
        return headers

    def _answering(self, send: Send, origin: str | None) -> Send:
        if origin is None:
            return send
        extra = self._cors(origin)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        return with_headers

    async def _with_body(self, scope: Scope, headers: MutableMapping[str, str], receive: Receive) -> Receive:
        """Read the body here, within its limits, and hand it on as one message."""
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            return receive
        limit = self._rules.max_body
        declared = headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
            raise _too_large(limit)
        body = bytearray()
        try:
            async with asyncio.timeout(self._rules.body_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError(400, "the client went away before its body had arrived")
                    body += message.get("body", b"")
                    if len(body) > limit:
                        raise _too_large(limit)
                    if not message.get("more_body"):
                        break
        except TimeoutError as error:
            seconds = self._rules.body_timeout_s
            raise ApiError(
                408, f"the body did not arrive within {seconds:g} s", headers={"Connection": "close"}
            ) from error
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        return replay


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413, f"the body is larger than {limit:,} bytes", code="body_too_large", headers={"Connection": "close"}
    )


def _netloc(origin: str) -> str:
    """The host and port in an Origin header; empty for what is no URL."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _hostname(host: str) -> str:
    """The name in a Host header, without its port and brackets."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


async def _respond(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    kind = [(b"content-type", b"application/json")] if body else []
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*kind, length, *headers]})
    await send({"type": "http.response.body", "body": body})
