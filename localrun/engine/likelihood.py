"""How likely the model found a token: log-probabilities of one row of logits.

Knows arrays and the vocabulary; knows no sampler. Invariant: the figures are of the model's own distribution, as it
was before any constraint, penalty or temperature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from localrun.engine.events import Chosen
from localrun.engine.ports import TokenTable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from localrun.engine.ports import Logits

    LogProbs = npt.NDArray[np.float64]


def log_softmax(logits: Logits) -> LogProbs:
    """Log-probabilities of a row of logits, in double precision: (n_vocab,)."""
    import numpy as np

    shifted = logits.astype(np.float64)
    shifted -= shifted.max()
    logprobs: LogProbs = shifted - np.log(np.exp(shifted).sum())
    return logprobs


class Likelihood:
    """The distribution of one row. Copies the row, which may be masked afterwards."""

    def __init__(self, logits: Logits, n_top: int) -> None:
        import numpy as np

        self._logprobs = log_softmax(logits)
        n_top = min(n_top, len(self._logprobs))
        best = np.argpartition(-self._logprobs, max(0, n_top - 1))[:n_top]
        self._top = sorted(best.tolist(), key=lambda token: -self._logprobs[token])

    def of(self, token: int, table: TokenTable) -> Chosen:
        """What to tell of the token that was chosen."""
        top = tuple((table.piece(other), float(self._logprobs[other])) for other in self._top)
        return Chosen(table.piece(token), float(self._logprobs[token]), top)


def certain(token: int, table: TokenTable) -> Chosen:
    """What to tell of a token that nobody chose: the constraint allowed nothing else."""
    return Chosen(table.piece(token), 0.0, ())
