"""From a `ConstraintSpec` to a grammar: which language is compiled by which module.

Knows the four kinds of constraint and nothing about any of them.
"""

from __future__ import annotations

from localrun.constraint.choice import compile_choice
from localrun.constraint.gbnf import compile_gbnf
from localrun.constraint.grammar import Grammar
from localrun.constraint.regex import compile_regex
from localrun.constraint.schema import compile_schema
from localrun.constraint.source_text import no_text
from localrun.errors import ConstraintError
from localrun.params import ConstraintSpec

_NAMES = {"json_schema": "schema", "gbnf": "grammar", "regex": "--regex", "choice": "--choice"}
"""What a constraint is called in messages where it has no name of its own."""


def grammar_of(spec: ConstraintSpec) -> Grammar:
    """Compile the constraint for no vocabulary in particular. Raises `ConstraintError`."""
    for text in (spec.source,) if isinstance(spec.source, str) else spec.source:
        if problem := no_text(text):
            raise ConstraintError(f"{spec.name or _NAMES[spec.kind]}: {problem}", hint="the output is UTF-8 text")
    if isinstance(spec.source, tuple):
        return compile_choice(spec.source, spec.name, special=spec.special)
    match spec.kind:
        case "json_schema":
            return compile_schema(
                spec.source, spec.name, lenient=spec.lenient, pretty=spec.pretty, followers=spec.followers
            )
        case "regex":
            return compile_regex(spec.source, spec.name)
        case _:
            return compile_gbnf(spec.source, spec.name)
