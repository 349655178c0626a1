"""JSON Schema: enforced token by token, or refused.

Knows the way from a schema to a grammar: document (references), shapes (what it says, type by type), values (how JSON
is written). Invariant: the grammar derives JSON texts that satisfy the schema and nothing else; what it cannot express
is an error with its JSON pointer, or in lenient mode a note and a final check.
"""

from __future__ import annotations

from localrun.constraint.grammar import Grammar, TextAcceptor
from localrun.constraint.schema.document import Document, load
from localrun.constraint.schema.keywords import Expander, Unenforceable
from localrun.constraint.schema.strings import is_empty
from localrun.constraint.schema.validate import FinalCheck
from localrun.constraint.schema.values import ValueWriter
from localrun.errors import ConstraintError

__all__ = ["compile_schema"]


def compile_schema(text: str, name: str, *, lenient: bool = False, pretty: bool = False) -> Grammar:
    """Read a schema and compile it. Raises `ConstraintError` with the place in the text or the JSON pointer."""
    from llguidance import LLMatcher

    try:
        document = load(text, name or "schema")
        expander = Expander(document, lenient=lenient, string_is_empty=is_empty)
        lark = LLMatcher.grammar_from_lark(_grammar(document, expander, pretty=pretty))
    except RecursionError as error:
        raise ConstraintError(
            f"{name or 'schema'}: the schema is nested too deep, or combines too many others"
        ) from error
    notes = tuple(f"at {pointer or '(root)'}: {note}" for pointer, note in expander.notes.items())
    return Grammar(lark, TextAcceptor(lark, document.name), FinalCheck(document), json=True, notes=notes)


def _grammar(document: Document, expander: Expander, *, pretty: bool) -> str:
    hint = "with --schema-lenient it is checked at the end instead"
    try:
        text = ValueWriter(expander, pretty=pretty).grammar(expander.expr(""))
    except Unenforceable as error:
        raise document.error(error.pointer, error.problem, hint) from error
    if not text:
        raise ConstraintError(f"{document.name}: no value satisfies the schema", hint="some of its bounds contradict")
    return text
