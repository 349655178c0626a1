"""`--schema`, `--grammar`, `--regex` and `--choice` → what the output must match.

Knows files, inline texts and the library of grammars; knows no engine. Invariant: a name that is neither a file nor in
the library is an error that lists what there is.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from localrun.cli.inputs import read_text_file
from localrun.errors import UsageError
from localrun.params import ConstraintSpec
from localrun.resources import resource

_ENDINGS = {"schema": ".schema.json", "grammar": ".gbnf"}


def constraint_of(
    *,
    schema: str | None,
    grammar: str | None,
    regex: str | None,
    choice: list[str] | None,
    lenient: bool = False,
    pretty: bool = False,
    close: bool = True,
) -> ConstraintSpec | None:
    """The constraint that the flags ask for; None without any. Raises `UsageError` for more than one."""
    values = {"--schema": schema, "--grammar": grammar, "--regex": regex, "--choice": choice or None}
    given = [flag for flag, value in values.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} exclude each other")
    if schema is not None:
        text, name = _schema_text(schema)
        return ConstraintSpec("json_schema", text, name, lenient=lenient, pretty=pretty, close=close)
    if lenient or pretty:
        raise UsageError("--schema-lenient and --pretty are for --schema")
    if grammar is not None:
        text, name = _library_text(grammar, "grammar")
        return ConstraintSpec("gbnf", text, name)
    if regex is not None:
        return ConstraintSpec("regex", regex, "--regex")
    if choice:
        return ConstraintSpec("choice", tuple(choice), "--choice")
    return None


def library(kind: str) -> dict[str, Path]:
    """The ready grammars of a kind (`schema` or `grammar`) by name."""
    ending = _ENDINGS[kind]
    return {path.name.removesuffix(ending): path for path in sorted(resource("grammars").glob(f"*{ending}"))}


def _schema_text(value: str) -> tuple[str, str]:
    if value.lstrip().startswith(("{", "[", '"')) or value.strip() in ("true", "false"):
        return value, "--schema"
    return _library_text(value, "schema")


def _library_text(value: str, kind: str) -> tuple[str, str]:
    path = Path(value)
    if path.is_file() or "/" in value or path.suffix:
        return read_text_file(path), value
    names = library(kind)
    if value in names:
        return names[value].read_text(encoding="utf-8"), value
    other = next(other for other in _ENDINGS if other != kind)
    if value in library(other):
        raise UsageError(f"--{kind} {value}: {value} is a {other}", hint=f"--{other} {value} takes it")
    near = difflib.get_close_matches(value, names, n=1)
    hint = f"did you mean {near[0]}?" if near else "localrun grammar ls shows the ready ones"
    raise UsageError(f"--{kind} {value}: there is no such file and no ready {kind} of that name", hint=hint)
