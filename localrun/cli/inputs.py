"""Files, stdin and PROMPT → one text.

Knows encodings and streams; knows no model. Invariants: a prompt's bytes are never changed in silence (a byte order
mark is the only thing removed), and bytes that are no text are an error that says where.
"""

from __future__ import annotations

import select
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from localrun.errors import InputError, UsageError

_PATIENCE_S = 2.0
"""After so long without a byte on stdin, the user is told what is being waited for."""
_LARGEST = 256 << 20
"""Bytes of stdin. A program that never ends its output should not take the machine's memory."""


_NO_TEXT = "a model reads text: take the text out of the file first"


@dataclass(frozen=True, slots=True)
class Composed:
    """The prompt as text, and as bytes for `--raw`."""

    text: str
    raw: bytes


def compose(prompt: str | None, files: list[Path], *, raw: bool) -> Composed:
    """Files, then stdin (when it is not a terminal), then PROMPT, joined by blank lines; as they are with `raw`.

    Raises `UsageError` where nothing was given, `InputError` for what cannot be read or is no text.
    """
    parts = [_read_file(path) for path in files]
    empty = [name for data, name in parts if not data.strip()]
    if prompt == "-" or (sys.stdin is not None and not sys.stdin.isatty()):
        piped = _read_stdin()
        if piped:
            parts.append((piped, "stdin"))
    if prompt not in (None, "-"):
        parts.append((str(prompt).encode("utf-8", "surrogateescape"), "PROMPT"))
    if not any(data.strip() for data, _ in parts):
        if empty:
            raise UsageError(f"there is no prompt: {', '.join(empty)} {'is' if len(empty) == 1 else 'are'} empty")
        raise UsageError("there is no prompt", hint='localrun generate "question", or pipe a text into it')
    texts = [decode(data, name) for data, name in parts]
    if raw:
        return Composed("".join(texts), "".join(texts).encode())
    text = "\n\n".join(text.rstrip("\n") for text in texts if text.strip())
    return Composed(text, text.encode())


def text_or_stdin(text: str | None, name: str) -> str:
    """The argument `name`, or all of stdin where it is left out or `-`. Either may be empty.

    Raises `UsageError` where a person would have to type it, `InputError` for what is no text.
    """
    if text not in (None, "-"):
        return decode(str(text).encode("utf-8", "surrogateescape"), name, takes_nul=True)
    if text is None and sys.stdin.isatty():
        raise UsageError(f"there is no {name}", hint="put it in quotes, pipe it in, or give - to type it")
    return decode(_read_stdin(), "stdin", takes_nul=True)


def decode(data: bytes, name: str, *, takes_nul: bool = False) -> str:
    """UTF-8 text, or UTF-16 where a byte order mark says so. Raises `InputError` with the place of a bad byte.

    A NUL byte is a sign of what is no text, and refused unless every byte is meant.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data.decode("utf-16")
        except UnicodeDecodeError as error:
            raise InputError(f"{name} begins like UTF-16 and is not: byte {error.start:,} fits no character") from error
    if not takes_nul and (place := data.find(b"\0")) >= 0:
        raise InputError(f"{name} is not text: it holds a NUL byte at offset {place:,}", hint=_NO_TEXT)
    try:
        return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{name} is not UTF-8 text: byte 0x{data[error.start]:02x} at offset {error.start:,} (line {line:,})",
            hint="convert it first, for example with: iconv -f latin1 -t utf-8",
        ) from error


def read_text_file(path: Path) -> str:
    """The text of a file."""
    data, name = _read_file(path)
    return decode(data, name)


def _read_file(path: Path) -> tuple[bytes, str]:
    try:
        mode = path.expanduser().stat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise InputError(f"{path} is a device", hint="a text comes from a file or a pipe")
        return path.expanduser().read_bytes(), str(path)
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder", hint="name the files in it") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{path} cannot be read: {reason}") from error


def _read_stdin() -> bytes:
    stream = sys.stdin.buffer
    try:
        ready, _, _ = select.select([stream], [], [], _PATIENCE_S)
        if not ready:
            print("note: waiting for stdin; end it, or give </dev/null", file=sys.stderr)  # noqa: T201
        data = stream.read(_LARGEST + 1)
    except OSError as error:
        raise InputError(f"stdin cannot be read: {error.strerror}") from error
    if len(data) > _LARGEST:
        raise InputError(f"stdin has more than {_LARGEST >> 20} MB", hint="no model reads so much at once")
    return data
