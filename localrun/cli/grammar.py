"""`localrun grammar`: the ready grammars and schemas, and whether a file of one's own is valid and takes a text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localrun.cli.inputs import decode, read_text_file
from localrun.cli.output import to_json, write_stderr, write_stdout
from localrun.errors import InvalidOutputError, UsageError

if TYPE_CHECKING:
    from localrun.params import ConstraintKind, ConstraintSpec

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def ls(json_output: JsonOption = False) -> None:
    """List the ready grammars (for --grammar) and schemas (for --schema)."""
    from localrun.constraint.library import entries

    found = entries()
    if json_output:
        write_stdout(
            to_json([{"name": e.name, "kind": e.kind, "purpose": e.purpose, "path": str(e.path)} for e in found])
        )
        return
    width = max(len(entry.name) for entry in found)
    write_stdout("".join(f"{entry.name:{width}}  {entry.kind:7}  {entry.purpose}\n" for entry in found))


def show(name: Annotated[str, typer.Argument(help="A name that `localrun grammar ls` lists.")]) -> None:
    """Print a ready grammar or schema, to read it or as a beginning of one's own."""
    write_stdout(_entry_text(name))


def check(
    file: Annotated[str, typer.Argument(help="A grammar (.gbnf), a schema (.json), or the name of a ready one.")],
    text: Annotated[str | None, typer.Argument(help="An output to test; - reads it from stdin.")] = None,
    lenient: Annotated[
        bool, typer.Option("--schema-lenient", help="Check at the end what cannot be enforced.")
    ] = False,
    pretty: Annotated[bool, typer.Option("--pretty", help="Of a schema: the indented form.")] = False,
) -> None:
    """Check a grammar or schema without a model; with STRING, whether it could be an output.

    The exit code is 0 if all is well, 2 for a grammar or schema that is invalid or cannot be enforced, and 7 for a
    text that does not match.
    """
    from localrun.constraint import check as check_constraint

    checked = check_constraint(_spec(file, lenient=lenient, pretty=pretty))
    for note in checked.notes:
        write_stderr(f"warning: {note}\n")
    if text is None:
        write_stdout(f"{file}: valid\n")
        return
    output = decode(sys.stdin.buffer.read(), "stdin").removesuffix("\n") if text == "-" else text
    fits = checked.grammar.acceptor.reach(output)
    if fits is not None:
        raise InvalidOutputError(_why(output, fits), hint=_place(output, fits))
    checked.grammar.validate(output)
    write_stdout("matches\n")


def _why(output: str, fits: int) -> str:
    """What is wrong with an output of which so many bytes fit."""
    data = output.encode()
    if fits >= len(data):
        return f"the text is only the beginning of a match: {len(output):,} characters fit, and more must follow"
    at = len(data[:fits].decode("utf-8", "ignore"))
    return f"the text does not match from character {at + 1:,} on: {output[at : at + 20]!r}"


def _place(output: str, fits: int) -> str:
    from localrun.constraint.source_text import SourceText

    at = len(output.encode()[:fits].decode("utf-8", "ignore"))
    return "here:\n" + SourceText(output, "text").excerpt(at)


def _spec(file: str, *, lenient: bool, pretty: bool) -> ConstraintSpec:
    """The constraint in a file, or a ready one; a schema by its ending or because it begins with a brace."""
    from localrun.params import ConstraintSpec

    path = Path(file)
    text = read_text_file(path) if path.is_file() or "/" in file or path.suffix else _entry_text(file)
    kind: ConstraintKind = "gbnf"
    if path.suffix == ".json" or (path.suffix != ".gbnf" and text.lstrip().startswith("{")):
        kind = "json_schema"
    if kind == "gbnf" and (lenient or pretty):
        raise UsageError(f"{file} is a grammar; --schema-lenient and --pretty are for schemas")
    return ConstraintSpec(kind, text, file, lenient=lenient, pretty=pretty)


def _entry_text(name: str) -> str:
    """The text of a ready grammar or schema. Raises `UsageError` for a name that is not there."""
    import difflib

    from localrun.constraint.library import entries

    texts = {entry.name: entry.text for entry in entries()}
    if name not in texts:
        near = difflib.get_close_matches(name, texts, n=1)
        hint = f"did you mean {near[0]}?" if near else "`localrun grammar ls` lists them"
        raise UsageError(f"there is no ready grammar {name!r}", hint=hint)
    return texts[name]


commands = {"ls": ls, "show": show, "check": check}
"""The group's commands by name."""
