"""A constraint compiled for no vocabulary in particular: what its texts are, byte by byte.

Knows llguidance's serialized form and the vocabulary of bytes; knows no model and none of the languages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localrun.constraint.foreign import compile_grammar
from localrun.constraint.vocabulary import byte_tokenizer

if TYPE_CHECKING:
    from localrun.engine.ports import TokenTable


@dataclass(frozen=True, slots=True)
class Grammar:
    """A constraint in llguidance's serialized form, with what goes around it."""

    text: str
    acceptor: TextAcceptor = field(repr=False)
    """Tells which texts the grammar derives; made from the same compilation that checked it."""
    validate: Callable[[str], None]
    """The final check of a complete output; raises `InvalidOutputError`."""
    with_table: Callable[[TokenTable], tuple[str, tuple[int, ...]]] | None = None
    """For a grammar that names tokens: its text and the ids named, for a vocabulary."""
    json: bool = False
    """The output is JSON: it can be closed early, and what runs on without end is ended."""
    choices: tuple[str, ...] = ()
    """The strings of a choice."""
    notes: tuple[str, ...] = ()
    """What is not enforced token by token but checked at the end (JSON Schema, lenient)."""


class TextAcceptor:
    """Tells of whole texts, byte by byte and without a model, whether a grammar in serialized form derives them."""

    def __init__(self, grammar: str, name: str) -> None:
        self._start = compile_grammar(byte_tokenizer(), grammar, name)

    def is_dead(self) -> bool:
        """Whether the grammar derives no text at all."""
        matcher = self._start.deep_copy()
        mask = matcher.compute_bitmask()
        return matcher.is_error() or (not matcher.is_accepting() and not any(mask[:32]))

    def accepts(self, text: str) -> bool:
        return self.reach(text) is None

    def prefix_fits(self, data: bytes) -> bool:
        """Whether some derived text begins with these bytes."""
        return self._start.deep_copy().try_consume_tokens(list(data)) == len(data)

    def reach(self, text: str) -> int | None:
        """None for a derived text; else how many of its bytes fit (all of them if it only stops too early)."""
        matcher = self._start.deep_copy()
        data = list(text.encode())
        taken = matcher.try_consume_tokens(data)
        return None if taken == len(data) and matcher.is_accepting() else taken
