"""Files that a chat takes in: attachments, grammars and schemas.

Knows paths and text; knows no screen. Invariant: what is no text, or too long to be meant, is an error that names the
file, before anything is sent.
"""

from __future__ import annotations

import os
from pathlib import Path

from localrun.errors import InputError
from localrun.params import ConstraintKind, ConstraintSpec
from localrun.resources import resource
from localrun.store import Attachment

MAX_BYTES = 4 * 1024 * 1024
"""About a million tokens: no local context holds more."""


def path_of(written: str, folder: Path | None = None) -> Path:
    """The path a person wrote, from `folder` on; a `~` that nobody lives in is a name like any other."""
    try:
        path = Path(written).expanduser()
    except RuntimeError:
        path = Path(written)
    return path if folder is None else folder / path


def read_attachment(path: Path) -> Attachment:
    """The text file as an attachment. Raises `InputError`."""
    return Attachment(path.name, read_text(path))


def read_text(path: Path) -> str:
    """The text in a file, as UTF-8 (with or without BOM) or UTF-16 with BOM. Raises `InputError`."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder", hint="name a file")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(f"{path} has {size:,} bytes", hint=f"at most {MAX_BYTES:,} make sense as a message")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is no text (byte {error.start:,} cannot be read as {encoding[:5].upper()})"
        ) from error
    if "\0" in text:
        raise InputError(f"{path} is no text (it holds NUL bytes)")
    return text


def read_constraint(name: str) -> ConstraintSpec:
    """A grammar or JSON Schema: a file, or one that ships with localrun. Raises `InputError`."""
    path = path_of(name)
    if not os.path.isfile(path):  # not Path.is_file(): that fails on a name that is too long
        shipped = next((path for path in grammar_files() if name in (path.name, grammar_name(path))), None)
        if shipped is None:
            names = ", ".join(sorted(map(grammar_name, grammar_files()))) or "none"
            raise InputError(f"there is no grammar {name!r}", hint=f"a .gbnf or .json file, or one of: {names}")
        path = shipped
    kind: ConstraintKind = "json_schema" if path.suffix == ".json" else "gbnf"
    return ConstraintSpec(kind, read_text(path), name=grammar_name(path))


def grammar_files() -> list[Path]:
    """The grammars that ship with localrun."""
    try:
        folder = resource("grammars")
    except FileNotFoundError:
        return []
    return sorted(path for path in folder.iterdir() if path.name.endswith((".gbnf", ".schema.json")))


def grammar_name(path: Path) -> str:
    """`date` for `date.gbnf` and for `date.schema.json`."""
    return path.name.removesuffix(".json").removesuffix(".schema").removesuffix(".gbnf")
