"""JSON Schema: enforced token by token, or refused.

Knows the way from a schema to a grammar: document (references), shapes (what it says, type by type), values (how JSON
is written). Invariant: the grammar derives JSON texts that satisfy the schema and nothing else; what it cannot express
is an error with its JSON pointer, or in lenient mode a note and a final check.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from localrun.constraint.grammar import Grammar, TextAcceptor
from localrun.constraint.schema.document import Document
from localrun.constraint.schema.keywords import Expander, Unenforceable
from localrun.constraint.schema.places import shown
from localrun.constraint.schema.preflight import look_through
from localrun.constraint.schema.reading import deepest_place, load
from localrun.constraint.schema.strings import is_empty
from localrun.constraint.schema.validate import FinalCheck
from localrun.constraint.schema.values import ValueWriter
from localrun.constraint.template_text import any_of
from localrun.errors import ConstraintError

if TYPE_CHECKING:
    from localrun.engine.ports import TokenTable

__all__ = ["compile_schema"]


def compile_schema(
    text: str, name: str, *, lenient: bool = False, pretty: bool = False, followers: tuple[str, ...] = ()
) -> Grammar:
    """Read a schema and compile it. Raises `ConstraintError` with the place in the text or the JSON pointer.

    `followers` are texts of a chat template, of which one comes behind the value.
    """
    from llguidance import LLMatcher

    expander: Expander | None = None
    try:
        document = load(text, name or "schema")
        expander = Expander(document, lenient=lenient, string_is_empty=is_empty)
        rules = _grammar(document, expander, pretty=pretty)
        look_through(document)
        lark = LLMatcher.grammar_from_lark(_followed(rules, followers)[0])
    except RecursionError as error:
        place = shown((expander and expander.too_deep) or deepest_place(text)[1])
        raise ConstraintError(
            f"{name or 'schema'}: at {place}: the schema is nested too deep, or combines too many others"
        ) from error
    notes = tuple(f"at {shown(pointer)}: {note}" for pointer, note in expander.notes.items())
    acceptor, check = TextAcceptor(lark, document.name), FinalCheck(document)
    if not followers:
        return Grammar(lark, acceptor, check, json=True, notes=notes)

    def with_table(table: TokenTable) -> tuple[str, tuple[int, ...]]:
        followed, named = _followed(rules, followers, table)
        return LLMatcher.grammar_from_lark(followed), named

    def validate(output: str) -> None:
        _, end = json.JSONDecoder().raw_decode(output)
        check(output[:end])

    return Grammar(lark, acceptor, validate, with_table, json=True, notes=notes)


def _followed(rules: str, followers: tuple[str, ...], table: TokenTable | None = None) -> tuple[str, tuple[int, ...]]:
    """The rules of a value with one of these texts behind it, and the tokens that they name."""
    if not followers:
        return rules, ()
    start, _, rest = rules.partition("\n")
    body, named = any_of(followers, table)
    return f"{start} after\nafter: {body}\n{rest}", named


def _grammar(document: Document, expander: Expander, *, pretty: bool) -> str:
    hint = "with --schema-lenient it is checked at the end instead"
    try:
        text = ValueWriter(expander, pretty=pretty).grammar(expander.expr(""))
    except Unenforceable as error:
        raise document.error(error.pointer, error.problem, hint) from error
    if not text:
        raise ConstraintError(f"{document.name}: no value satisfies the schema", hint="some of its bounds contradict")
    return text
