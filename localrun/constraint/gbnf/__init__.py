"""GBNF, the grammar language of llama.cpp: parser, checks, translation.

Knows the way from text to llguidance's notation. Invariant: `compile_gbnf` either returns a grammar that accepts what
llama.cpp's own engine accepts, or raises an error that shows the place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from localrun.constraint.gbnf.checks import check
from localrun.constraint.gbnf.lark import to_lark
from localrun.constraint.gbnf.parser import parse
from localrun.constraint.gbnf.syntax import Token, walk
from localrun.constraint.grammar import Grammar, TextAcceptor
from localrun.constraint.source_text import SourceText
from localrun.errors import InvalidOutputError

if TYPE_CHECKING:
    from localrun.engine.ports import TokenTable

__all__ = ["compile_gbnf"]


def compile_gbnf(text: str, name: str) -> Grammar:
    """Parse, check and translate a grammar. Raises `ConstraintError` with name, line, column and a caret."""
    from llguidance import LLMatcher

    source = SourceText(text, name or "grammar")
    tree = parse(source)
    check(tree, source)
    tokens = [node for rule in tree.rules.values() for node in walk(rule.body) if isinstance(node, Token)]
    lark = LLMatcher.grammar_from_lark(to_lark(tree, source, lambda token: 0))
    acceptor = TextAcceptor(lark, source.name)

    def validate(output: str) -> None:
        if not acceptor.accepts(output):
            raise InvalidOutputError(f"the output does not match {source.name}: {_shown(output)}")

    if not tokens:
        return Grammar(lark, acceptor, validate)

    def with_table(table: TokenTable) -> tuple[str, tuple[int, ...]]:
        ids = {token: _resolve(token, table, source) for token in tokens}
        named = tuple(sorted({ids[token] for token in tokens if not token.negated}))
        return LLMatcher.grammar_from_lark(to_lark(tree, source, ids.__getitem__)), named

    # Text alone does not tell which tokens it came from, so a grammar over tokens has no final check.
    return Grammar(lark, acceptor, lambda output: None, with_table)


def _resolve(token: Token, table: TokenTable, source: SourceText) -> int:
    """The id that a token reference stands for in a vocabulary."""
    if token.id is None:
        found = table.encode(token.text.encode(), special=True)
        if len(found) != 1:
            raise source.error(token.offset, f"{token.text!r} is not one token of this model but {len(found)}")
        return found[0]
    if token.id >= table.n_tokens:
        raise source.error(
            token.offset, f"the token {token.id} is outside this model's vocabulary of {table.n_tokens:,}"
        )
    return token.id


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
