"""HTTP to one engine: calls, and what each way to fail means.

The only module that imports the HTTP client. Knows status codes, error bodies and transport failures; knows no
parameters. Invariants: nothing of the client's own errors escapes, a failure that may pass is a `PassingError`, and
no message holds the key.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from localrun import __version__
from localrun.errors import ContextOverflowError, LocalrunError, ModelNotFoundError, RemoteError
from localrun.remote.control import Control
from localrun.remote.fields import count_of, encodable, parsed, shown, word_of
from localrun.remote.settings import EngineSettings
from localrun.remote.wire import shortened

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_BODY_BYTES = 1 << 20
"""The most that is read of an error's body."""
_MESSAGE_CHARACTERS = 2000
"""The most of an error's message that is looked at: it is searched with patterns whose time grows faster than it."""


class PassingError(Exception):
    """A failure that may be gone in a moment. `after_s` is what the server asked to wait."""

    def __init__(self, error: LocalrunError, after_s: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.after_s = after_s


class RefusedKeyError(Exception):
    """The server refuses one key of the request."""

    def __init__(self, key: str, error: LocalrunError) -> None:
        super().__init__(key)
        self.key = key
        self.error = error


class Connection:
    """Calls to one engine. Thread-safe."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        headers = {"User-Agent": f"localrun/{__version__}", **settings.headers}
        if settings.key:
            headers["Authorization"] = f"Bearer {settings.key}"
        self._client = httpx2.Client(
            transport=httpx2.HTTPTransport(uds=settings.socket) if settings.socket else None,
            headers=headers,
            timeout=httpx2.Timeout(settings.read_timeout_s, connect=settings.connect_timeout_s),
            # A call that is stopped shuts its socket down, so no two calls may share one.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            follow_redirects=True,
        )

    def get(self, path: str, *, at_root: bool = False) -> Any:
        """The JSON of a GET; None for what is not there. Raises `RemoteError`."""
        url = (self._settings.root if at_root else self._settings.base_url) + path
        with self._mapped():
            response = self._client.get(url, timeout=self._settings.connect_timeout_s)
        if response.status_code in (404, 405, 501):
            return None
        if response.status_code >= 400:
            raise self._failure(response.status_code, response.headers, response.content, {})
        try:
            return parsed(response.content)
        except ValueError:
            return None  # a web page: whatever serves it, it is not this part of an engine

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that answers a POST to the server's root; None if it cannot answer this."""
        with self._mapped():
            response = self._client.post(self._settings.root + path, json=body)
        try:
            return parsed(response.content) if response.status_code < 400 else None
        except ValueError:
            return None

    @contextmanager
    def stream(self, path: str, body: Mapping[str, Any], control: Control) -> Iterator[Iterator[bytes]]:
        """The bytes of a streamed answer.

        Raises `PassingError`, `RefusedKeyError`, or `LocalrunError`.
        """
        extensions = {"trace": control.trace}
        url = self._settings.base_url + path
        with self._mapped(), self._client.stream("POST", url, json=body, extensions=extensions) as response:
            if response.status_code >= 400:
                content = b"".join(_first(response.iter_bytes(), _BODY_BYTES))
                raise self._failure(response.status_code, response.headers, content, body)
            kind = response.headers.get("content-type", "")
            if not kind.startswith("text/event-stream"):
                content = b"".join(_first(response.iter_bytes(), _BODY_BYTES))
                raise RemoteError(
                    f"{self._settings.name} does not stream: it sent {kind or 'something without a type'}, "
                    f"{shortened(content.decode('utf-8', 'replace'))}",
                    hint="is this the address of an OpenAI-compatible API? It often ends in /v1",
                )
            yield response.iter_bytes()

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """Turns the client's errors into ours. Source: httpx2's exception hierarchy."""
        where = self._settings.name
        try:
            yield
        except httpx2.ConnectTimeout as error:
            raise PassingError(
                RemoteError(f"{where} does not answer: no connection after {self._settings.connect_timeout_s:g} s")
            ) from error
        except httpx2.ConnectError as error:
            raise PassingError(
                RemoteError(f"no server answers at {where}: {_reason(error)}", hint="is it running there?")
            ) from error
        except httpx2.TimeoutException as error:
            seconds = self._settings.read_timeout_s
            message = f"{where} has said nothing for {seconds:g} s"
            hint = "a longer read_timeout can be set in the configuration"
            raise RemoteError(message, hint=hint) from error
        except httpx2.TooManyRedirects as error:
            raise RemoteError(f"{where} redirects in a circle") from error
        except httpx2.DecodingError as error:
            raise RemoteError(f"{where} sent a damaged compressed body: {_reason(error)}") from error
        except (httpx2.TransportError, httpx2.StreamError) as error:
            raise PassingError(RemoteError(f"the connection to {where} broke off: {_reason(error)}")) from error
        except httpx2.InvalidURL as error:
            raise RemoteError(f"{where} is no address: {error}") from error

    def _failure(self, status: int, headers: Mapping[str, str], content: bytes, body: Mapping[str, Any]) -> Exception:
        """The exception for an error response."""
        told = _told(content)
        error = self.mapped_error(told, status)
        if status in _PASSING:
            return PassingError(error, _retry_after(headers))
        if status in (400, 422) and type(error) is RemoteError and (key := _refused_key(told, body)):
            return RefusedKeyError(key, error)
        return error

    def mapped_error(self, told: Mapping[str, Any], status: int | None = None) -> LocalrunError:
        """Our error for what a server said, in an error response or inside a stream."""
        where, message = self._settings.name, shortened_line(told["message"])
        if overflow := _overflow(told):
            return overflow
        if status in (401, 403):
            hint = "api_key_env in the configuration names the variable that holds the key"
            return RemoteError(f"{where} refuses the key: {message or status}", hint=hint)
        if status == 404 and "model" in message.lower():
            return ModelNotFoundError(f"{where} does not have this model: {message}")
        if status == 404:
            return RemoteError(
                f"{where} has no such API: {message or 'not found'}", hint="a base URL often ends in /v1"
            )
        label = f"{where} answered with error {status}" if status else f"{where} ended the answer with an error"
        return RemoteError(f"{label}: {message}" if message else label)


def _told(content: bytes) -> dict[str, Any]:
    """What an error body says, in whichever of the usual forms."""
    try:
        value = parsed(content)
    except ValueError:
        return {"message": re.sub(r"<[^<>]*>", " ", content.decode("utf-8", "replace"))[:_MESSAGE_CHARACTERS]}
    return error_object(value)


def error_object(value: Any) -> dict[str, Any]:
    """The error in a JSON body: `{"error": {"message": …}}`, `{"error": "…"}`, `{"detail": …}`, `{"message": …}`.

    What comes out has a `message` that is a text; its other fields may hold anything.
    """
    inner = value
    if isinstance(value, dict):
        inner = next((value[key] for key in ("error", "detail") if value.get(key) is not None), value)
    fields = inner if isinstance(inner, dict) else {}
    message = fields.get("message", inner)
    if isinstance(message, list):  # FastAPI's list of what is wrong
        message = "; ".join(_complaint(item) for item in message if isinstance(item, dict)) or message
    if message is None:
        message = ""
    if not isinstance(message, str):
        message = f"the server sent {shown(message)} where a message was expected"
    return {**fields, "message": encodable(message[:_MESSAGE_CHARACTERS])}


def _complaint(item: Mapping[str, Any]) -> str:
    """One of FastAPI's: where, and what."""
    where, what = item.get("loc"), word_of(item, "msg")
    place = ".".join(str(part) for part in where if isinstance(part, str | int)) if isinstance(where, list) else ""
    return f"{place}: {what or shown(item)}"


def shortened_line(text: str) -> str:
    """One line of at most 300 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:300] + "…"


_NUMBER = r"[0-9][0-9,]{0,18}"
_OVERFLOWS = (
    # vLLM and OpenAI, SGLang, llama-server, Ollama and LM Studio, in that order
    re.compile(
        rf"maximum context length is (?P<limit>{_NUMBER})"
        rf".*?(?:requested|resulted in|contains at least)\D*(?P<n>{_NUMBER})"
    ),
    re.compile(rf"\((?P<n>{_NUMBER}) tokens?\)[^.]*?(?:context length|maximum)[^.]*?\((?P<limit>{_NUMBER})"),
    re.compile(rf"request \((?P<n>{_NUMBER}) tokens\) exceeds the available context size \((?P<limit>{_NUMBER})"),
    re.compile(rf"the prompt has (?P<n>{_NUMBER}) tokens, the context holds (?P<limit>{_NUMBER})"),
)


def _overflow(told: Mapping[str, Any]) -> ContextOverflowError | None:
    message = told["message"]
    n, limit = count_of(told, "n_prompt_tokens"), count_of(told, "n_ctx")
    if n is None or limit is None:
        for pattern in _OVERFLOWS:
            if match := pattern.search(message):
                n, limit = (int(match[name].replace(",", "")) for name in ("n", "limit"))
                break
    kinds = {word_of(told, "type"), word_of(told, "code")}
    if n is not None and limit is not None:
        return ContextOverflowError(
            f"the prompt has {n:,} tokens, the remote context holds {limit:,}", hint="shorten the prompt"
        )
    if kinds & {"exceed_context_size_error", "context_length_exceeded"}:
        return ContextOverflowError(shortened_line(message) or "the prompt is longer than the remote context")
    return None


_REFUSES = re.compile(
    r"unsupported|not supported|does not support|doesn't support|unrecognized|unknown|unexpected|not permitted|"
    r"extra (?:inputs|fields)|not allowed|invalid field|not enabled|requires",
    re.IGNORECASE,
)


def _refused_key(told: Mapping[str, Any], body: Mapping[str, Any]) -> str | None:
    """The key of the request that an error names as not supported, if it does."""
    from localrun.remote.payload import ESSENTIAL_KEYS

    message, parameter = told["message"], word_of(told, "param")
    if not _REFUSES.search(message):
        return None
    candidates = [key for key in body if key not in ESSENTIAL_KEYS]
    if parameter and parameter.split(".")[0] in candidates:
        return parameter.split(".")[0]
    named = [key for key in candidates if re.search(rf"(?<![\w]){re.escape(key)}(?![\w])", message)]
    return max(named, key=len) if named else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds from `Retry-After`: a number or a date (RFC 9110, 10.2.3)."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):  # no date, or one of a year that no clock shows
        return None


def _reason(error: Exception) -> str:
    return shortened_line(str(error)) or type(error).__name__


def _first(chunks: Iterator[bytes], limit: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk[:limit]
        limit -= len(chunk)
        if limit <= 0:
            return
