"""The constraint of a request, made ready beside the prefill.

Knows constraints and a model's vocabulary; knows no engine. The tables of a vocabulary take 0.1 s and more; they are
built once for each model, on a thread, while the prompt is computed. Invariant: whoever asks for a mask gets it, or
the error that kept it from being made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING

from localrun.engine.ports import Matcher, TokenTable
from localrun.errors import ConstraintError, UsageError
from localrun.params import ConstraintSpec

if TYPE_CHECKING:
    from localrun.constraint.compiled import CheckedConstraint, CompiledConstraint, PreparedVocabulary
    from localrun.engine.ports import Logits


class Vocabularies:
    """The tables of one model's vocabulary, built when the first constraint needs them."""

    def __init__(self, table: TokenTable) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._prepared: Future[PreparedVocabulary] | None = None
        self._thread: threading.Thread | None = None

    def prepared(self) -> Future[PreparedVocabulary]:
        """The tables, now or soon. Starts to build them."""
        with self._lock:
            if self._prepared is None:
                self._prepared = Future()
                self._thread = threading.Thread(target=self._prepare, name="localrun-vocabulary", daemon=True)
                self._thread.start()
            return self._prepared

    def close(self) -> None:
        """Wait until nobody reads the vocabulary any more: it is freed with the model. Idempotent."""
        if self._thread is not None:
            self._thread.join()

    def _prepare(self) -> None:
        from localrun.constraint import prepare

        assert self._prepared is not None
        try:
            self._prepared.set_result(prepare(self._table))
        except BaseException as error:  # handed to whoever needs the tables
            self._prepared.set_exception(error)


class RequestConstraint:
    """One request's constraint: checked at once, compiled when the vocabulary is ready."""

    def __init__(self, checked: CheckedConstraint, vocabulary: Future[PreparedVocabulary]) -> None:
        self.checked = checked
        self._vocabulary = vocabulary

    @property
    def table(self) -> TokenTable:
        return self._vocabulary.result().table

    @cached_property
    def compiled(self) -> CompiledConstraint:
        """Waits for the vocabulary. Raises `ConstraintError` where a grammar names a token that there is not."""
        return self.checked.bind_to(self._vocabulary.result())

    def compile_now(self) -> None:
        """Wait for the vocabulary and compile here, instead of on the engine's thread. Raises `ConstraintError`."""
        assert self.compiled is not None

    @property
    def choices(self) -> tuple[str, ...]:
        return self.compiled.choices

    def matcher(self, begun: bytes = b"") -> Matcher:
        """A matcher at the start, or behind a beginning that is given already."""
        return LateMatcher(self, begun)

    def choice_scores(
        self, table: TokenTable, score: Callable[[Sequence[int]], Sequence[float]]
    ) -> tuple[tuple[str, float], ...]:
        """Each string of a choice with its probability; empty for other constraints."""
        if not self.choices:
            return ()
        from localrun.constraint.choice import choice_probabilities

        return tuple(choice_probabilities(self.choices, table, score))

    def validate(self, text: str) -> None:
        """Raises `InvalidOutputError`."""
        self.compiled.validate(text)


class LateMatcher:
    """A matcher that is made when it is first asked, which is after the prompt was computed."""

    def __init__(self, constraint: RequestConstraint, begun: bytes) -> None:
        self._constraint = constraint
        self._begun = begun

    @cached_property
    def _matcher(self) -> Matcher:
        matcher = self._constraint.compiled.matcher()
        try:
            for token in self._constraint.table.encode(self._begun):
                matcher.accept(token)
        except ConstraintError as error:
            raise UsageError("the beginning of the answer does not match the constraint") from error
        return matcher

    def mask(self, logits: Logits) -> None:
        self._matcher.mask(logits)

    def accept(self, token: int) -> None:
        self._matcher.accept(token)

    def forced(self) -> list[int]:
        return self._matcher.forced()

    def rollback(self, n: int) -> None:
        self._matcher.rollback(n)

    def fork(self) -> Matcher:
        return self._matcher.fork()

    @property
    def may_end(self) -> bool:
        return self._matcher.may_end

    @property
    def must_end(self) -> bool:
        return self._matcher.must_end

    def closing(self, budget: int) -> list[int] | None:
        return self._matcher.closing(budget)


def checked_constraint(spec: ConstraintSpec | None) -> CheckedConstraint | None:
    """Raises `ConstraintError` for one that is invalid or cannot be enforced."""
    if spec is None:
        return None
    from localrun.constraint import check

    return check(spec)
