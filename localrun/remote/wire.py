"""Bytes of an event stream → JSON values, and pieces of JSON strings → whole characters.

Knows server-sent events and UTF-8; knows no API. Invariant: damage is an error, never a replacement character of ours.

Source: the WHATWG specification of server-sent events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from localrun.errors import RemoteError
from localrun.remote.fields import parsed, wrong

_LONGEST_LINE = 16 << 20
_DONE = "[DONE]"


class EndOfStream:
    """The server said that the stream is complete (`data: [DONE]`)."""


def events(chunks: Iterable[bytes]) -> Iterator[dict[str, Any] | EndOfStream]:
    """Every event's JSON object, then `EndOfStream` if the server sent it.

    Raises `RemoteError` for bytes that are no UTF-8, data that is no JSON object, and lines without an end.
    """
    data: list[str] = []
    for line in _lines(chunks):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line == "" and data:
            text, data = "\n".join(data), []
            if text.strip() == _DONE:
                yield EndOfStream()
                return
            yield _object(text)
    if data and (text := "\n".join(data)).strip() == _DONE:
        yield EndOfStream()


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    held = bytearray()
    for chunk in chunks:
        held += chunk
        if b"\n" not in chunk:
            if len(held) > _LONGEST_LINE:
                raise RemoteError(f"the server sent a line of more than {_LONGEST_LINE:,} bytes")
            continue
        *whole, rest = held.split(b"\n")
        held = bytearray(rest)
        for line in whole:
            yield _text(line)
    if held:
        yield _text(held)


def _text(line: bytes | bytearray) -> str:
    try:
        return line.decode().removesuffix("\r")
    except UnicodeDecodeError as error:
        raise RemoteError(
            f"the server sent bytes that are not UTF-8: 0x{line[error.start]:02x} after "
            f"{bytes(line[max(0, error.start - 20) : error.start])!r}"
        ) from error


def _object(text: str) -> dict[str, Any]:
    try:
        value = parsed(text)
    except ValueError as error:
        raise RemoteError(f"the server sent something that is not JSON: {shortened(text)}") from error
    if not isinstance(value, dict):
        raise wrong(value, "an object")
    return value


def shortened(text: str) -> str:
    """A text for a message."""
    return repr(text if len(text) <= 120 else text[:120] + "…")


class Surrogates:
    """Joins characters that a server has cut in two halves of UTF-16 between two pieces."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        """The text with what was held back; half a character at its end waits."""
        text, self._held = self._held + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return _joined(text)

    def finish(self) -> str:
        """What was held back. Raises `RemoteError` if it is half a character."""
        if self._held:
            raise RemoteError("the server's text ends in half a character")
        return ""


def _joined(text: str) -> str:
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise RemoteError("the server sent half a character in its text") from error
