"""Random outputs of a constraint without a model: a walk over a byte vocabulary that takes any allowed token."""

from __future__ import annotations

import random

import numpy as np

from localrun.constraint.compiled import CompiledConstraint
from localrun.constraint.matcher import TokenMatcher
from localrun.constraint.vocabulary import ByteTable

END = ByteTable.end
COMMON = frozenset(b'"}],:0a-') | {END}


def allowed_tokens(matcher: TokenMatcher) -> list[int]:
    """What may come next, the end included."""
    bits = np.unpackbits(matcher.allowed(), bitorder="little")[: ByteTable().n_tokens]
    return np.flatnonzero(bits).tolist()


def walk(constraint: CompiledConstraint, seed: int, budget: int = 400) -> str | None:
    """One random output of at most `budget` bytes, closed in time; None if it could not be completed."""
    rng = random.Random(seed)
    matcher = constraint.matcher()
    taken: list[int] = []
    while len(taken) < budget:
        closing = matcher.closing(budget - len(taken))
        if closing is not None:
            taken += closing
            for token in closing:
                matcher.accept(token)
            break
        tokens = allowed_tokens(matcher)
        common = [token for token in tokens if token in COMMON]
        token = rng.choice(common if common and rng.random() < 0.6 else tokens)
        if token == END:
            break
        matcher.accept(token)
        taken.append(token)
    return bytes(taken).decode() if matcher.may_end else None
