"""A constraint that is ready for a vocabulary, and what is known of it before there is one.

Knows the life of a constraint: checked without a model, then bound to a vocabulary, then one matcher for each
sequence; knows none of the languages. Invariant: whatever passed its check binds to every vocabulary, unless it names
a token that the vocabulary lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localrun.constraint.foreign import compile_grammar
from localrun.constraint.matcher import TokenMatcher
from localrun.constraint.tables import MaskTables, make_tables
from localrun.constraint.vocabulary import build_tokenizer, byte_tokenizer, control_tokens
from localrun.params import ConstraintSpec

if TYPE_CHECKING:
    from llguidance import LLMatcher

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


@dataclass(frozen=True, slots=True)
class CheckedConstraint:
    """A constraint that is known to be valid and enforceable, before a model is loaded."""

    spec: ConstraintSpec
    grammar: Grammar

    @property
    def notes(self) -> tuple[str, ...]:
        return self.grammar.notes

    @property
    def choices(self) -> tuple[str, ...]:
        """The strings of a choice; empty for every other constraint."""
        return self.grammar.choices

    def bind(self, table: TokenTable) -> CompiledConstraint:
        """Compile for a vocabulary. Building its table takes most of the time; see `Vocabularies` to share one."""
        return self.bind_to(prepare(table))

    def bind_to(self, vocabulary: PreparedVocabulary) -> CompiledConstraint:
        """Compile for a vocabulary that has been prepared (once for each model)."""
        text: str = self.grammar.text
        named: tuple[int, ...] = ()
        if self.grammar.with_table is not None:
            text, named = self.grammar.with_table(vocabulary.table)
        prototype = compile_grammar(vocabulary.tables.tokenizer, text, self.spec.name or self.spec.kind)
        return CompiledConstraint(self, vocabulary.tables, prototype, named)


@dataclass(frozen=True, slots=True)
class PreparedVocabulary:
    """The tables that all constraints of one model share."""

    table: TokenTable
    tables: MaskTables


def prepare(table: TokenTable) -> PreparedVocabulary:
    """Build the tables for a vocabulary: once for each model, in any thread."""
    pieces = table.pieces()
    no_text = control_tokens(table, pieces)
    tokenizer = build_tokenizer(table, pieces, no_text)
    return PreparedVocabulary(table, make_tables(tokenizer, pieces, table.eog_ids, no_text))


@dataclass(frozen=True, slots=True)
class CompiledConstraint:
    """A `Constraint`: shared by all sequences that use it."""

    checked: CheckedConstraint
    tables: MaskTables = field(repr=False)
    prototype: LLMatcher = field(repr=False)
    named: tuple[int, ...] = ()

    def matcher(self) -> TokenMatcher:
        spec = self.checked.spec
        return TokenMatcher(
            self.prototype.deep_copy(),
            self.tables,
            self.named,
            json=self.checked.grammar.json,
            closes=self.checked.grammar.json and spec.close,
            name=spec.name or spec.kind,
        )

    @property
    def choices(self) -> tuple[str, ...]:
        return self.checked.choices

    def validate(self, text: str) -> None:
        self.checked.grammar.validate(text)


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
