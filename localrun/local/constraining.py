"""The constraint of a request, made ready beside the loading of the model.

Knows constraints, the tokens of vocabularies on disk and a model that is being loaded; knows no engine. The tables of
a vocabulary take 0.1 s and more; they are built once for each model, on a thread: from the tokens on disk while the
model is loaded, the first time from the model while the prompt is computed. Invariant: whoever asks for a mask gets
it, or the error that kept it from being made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING

from localrun.engine.ports import Matcher, TokenTable
from localrun.errors import ConstraintError, UsageError
from localrun.gguf import GGUFHeader, vocabulary_fingerprint
from localrun.llama.library import silent_engine
from localrun.params import ConstraintSpec
from localrun.paths import default_paths
from localrun.release import engine_release

if TYPE_CHECKING:
    from localrun.constraint.checked import CheckedConstraint
    from localrun.constraint.compiled import CompiledConstraint, PreparedVocabulary
    from localrun.constraint.tokens import VocabularyTokens
    from localrun.engine.ports import Logits


class Vocabularies:
    """The tables of one model's vocabulary, built when the first constraint needs them."""

    def __init__(
        self, header: GGUFHeader, table: Callable[[], TokenTable], *, is_loading: Callable[[], bool] = lambda: False
    ) -> None:
        """`table` waits for the model, and raises what loading raised; `is_loading` tells whether it would wait."""
        self._header = header
        self._table = table
        self._is_loading = is_loading
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
        assert self._prepared is not None
        try:
            from localrun.constraint.token_store import TokenStore

            store = TokenStore(default_paths().vocabularies)
            identity = f"{vocabulary_fingerprint(self._header)} {engine_release()}"
            stored = store.load(identity)
            tokens = stored or self._tokens()
            self._prepared.set_result(self._build(tokens))
        except BaseException as error:  # handed to whoever needs the tables
            self._prepared.set_exception(error)
            return
        if stored is None:
            store.save(identity, tokens)

    def _tokens(self) -> VocabularyTokens:
        """All tokens, from the model. Waits for it."""
        from localrun.constraint.tokens import VocabularyTokens

        return VocabularyTokens.of(self._table())

    def _build(self, tokens: VocabularyTokens) -> PreparedVocabulary:
        # The interpreter is held for up to a second, and a load should not wait for it.
        with silent_engine() if self._is_loading() else nullcontext():
            from localrun.constraint import tables_of

            # What encodes is only asked for text that a constraint forces: then the model is there.
            tables = tables_of(tokens, lambda text: self._table().encode(text))
        from localrun.constraint.compiled import PreparedVocabulary

        return PreparedVocabulary(self._table(), tables)


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
