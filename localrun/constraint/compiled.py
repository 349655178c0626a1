"""A constraint that is ready for a vocabulary: one matcher for each sequence.

Knows matchers and the tables that they share; knows none of the languages. Invariant: whatever is here is shared by
all sequences of a model and does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localrun.constraint.checked import CheckedConstraint
from localrun.constraint.matcher import TokenMatcher
from localrun.constraint.tables import MaskTables

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from localrun.engine.ports import TokenTable


@dataclass(frozen=True, slots=True)
class PreparedVocabulary:
    """The tables that all constraints of one model share."""

    table: TokenTable
    tables: MaskTables


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
