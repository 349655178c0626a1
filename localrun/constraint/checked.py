"""A constraint that is known to be valid and enforceable, before there is a vocabulary for it.

Knows what is known of a constraint without a model; knows none of the languages. Masks, and the arrays they are made
of, are imported when a vocabulary comes: whoever only checks a constraint waits for neither. Invariant: whatever
passed its check binds to every vocabulary, unless it names a token that the vocabulary lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localrun.constraint.foreign import compile_grammar
from localrun.constraint.grammar import Grammar
from localrun.params import ConstraintSpec

if TYPE_CHECKING:
    from localrun.constraint.compiled import CompiledConstraint, PreparedVocabulary
    from localrun.engine.ports import TokenTable


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
        """Compile for a vocabulary. Building its tables takes most of the time: prepare them once to share them."""
        from localrun.constraint import prepare

        return self.bind_to(prepare(table))

    def bind_to(self, vocabulary: PreparedVocabulary) -> CompiledConstraint:
        """Compile for a vocabulary that has been prepared (once for each model)."""
        from localrun.constraint.compiled import CompiledConstraint

        text: str = self.grammar.text
        named: tuple[int, ...] = ()
        if self.grammar.with_table is not None:
            text, named = self.grammar.with_table(vocabulary.table)
        prototype = compile_grammar(vocabulary.tables.tokenizer, text, self.spec.name or self.spec.kind)
        return CompiledConstraint(self, vocabulary.tables, prototype, named)
