"""What the engine needs of the world: a model that decodes, a sampler that chooses, a constraint that masks.

Protocols only, no ctypes, no text templates: every engine test runs on a fake backend with a byte vocabulary.
Invariant: whoever implements `Backend` maps every failure to an exception of `localrun.errors`, except "no room",
which is an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]  # (n_vocab,), a view that dies at the next decode


class TokenTable(Protocol):
    """The vocabulary as bytes."""

    @property
    def n_tokens(self) -> int: ...

    @property
    def eog_ids(self) -> frozenset[int]:
        """Every token that ends a generation."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes of a token, special tokens as their written form."""
        ...

    def pieces(self) -> Sequence[bytes]:
        """The bytes of all tokens, in order of their ids; read in bulk."""
        ...

    def is_control(self, token: int) -> bool:
        """Whether the token is no text: control, unknown or unused."""
        ...

    def encode(self, text: bytes, *, special: bool = False) -> list[int]:
        """Token ids of plain text; with `special`, written special tokens become themselves. Never adds BOS or EOS."""
        ...


class Matcher(Protocol):
    """The state of one sequence inside a compiled constraint. Owned by that sequence; not shared between threads."""

    def mask(self, logits: Logits) -> None:
        """Set the logits of every token that may not come next to -inf, in place.

        End-of-generation tokens stay allowed exactly where the output may end.
        """
        ...

    def accept(self, token: int) -> None:
        """Advance by a token that the mask allows. Raises `ConstraintError` for any other (our own bug)."""
        ...

    def forced(self) -> list[int]:
        """The tokens that must come next, whatever is sampled (possibly none). Does not advance."""
        ...

    def rollback(self, n: int) -> None:
        """Take back the last `n` accepted tokens."""
        ...

    def fork(self) -> Matcher:
        """An independent copy in the same state."""
        ...

    @property
    def may_end(self) -> bool:
        """Whether what was accepted so far is complete."""
        ...

    @property
    def must_end(self) -> bool:
        """Whether nothing but the end may follow."""
        ...

    def closing(self, budget: int) -> list[int] | None:
        """Tokens that complete the output, if `budget` tokens suffice *only just*; None while there is no hurry.

        Called after each token with the tokens that are left; the engine emits what is returned instead of sampling.
        """
        ...


class Constraint(Protocol):
    """A compiled constraint, shared by all sequences that use it."""

    def matcher(self) -> Matcher:
        """A new matcher at the start."""
        ...

    def validate(self, text: str) -> None:
        """Final check of a complete output. Raises `InvalidOutputError`."""
        ...
