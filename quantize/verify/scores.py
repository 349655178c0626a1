"""Figures of agreement between two models' predictions, as `llama-perplexity --kl-divergence` defines them.

Knows logits of the same positions from two models; no engine and no text. Invariant: sums are in double precision, and
logits are never kept: a batch goes in, three numbers per position stay.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from quantize.errors import WeightError
from quantize.runtime import Logits, Tokens

_TAIL = -16.0
"""Tokens that the base gives a log-probability below this do not count in the divergence (as in llama-perplexity)."""

_MIN_POSITIONS = 100
"""Fewer say nothing about tails."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Figures over some positions. Each `_error` is one standard error of the figure before it."""

    positions: int
    perplexity_base: float
    perplexity: float
    perplexity_error: float
    log_ratio: float
    """Mean of ln(perplexity) minus that of the base: 0.01 is one percent more perplexity."""
    log_ratio_error: float
    divergence: float
    """Mean KL divergence of the model from its base, in nats."""
    divergence_error: float
    divergence_median: float
    divergence_99: float
    divergence_999: float
    divergence_max: float
    same_top: float
    """Share of positions where both would choose the same token, 0 to 1."""
    same_top_error: float
    rms_probability_change: float
    """Root mean square of the change of the right token's probability, 0 to 1."""
    rms_probability_change_error: float
    mean_probability_change: float
    drawn_differently: float
    """Half the summed difference of the two distributions: how often one draw must differ."""

    def as_json(self) -> dict[str, float]:
        return asdict(self)


class Scores:
    """Collects positions. `add` changes it; `statistics` does not."""

    def __init__(self) -> None:
        self._parts: list[Values] = []

    def add(self, base: Logits, other: Logits, targets: Tokens) -> None:
        """Logits of both models for the same positions, and the tokens that really followed.

        Args:
            base: (n, n_vocab), of the model that is compared with.
            other: (n, n_vocab).
            targets: (n,)

        Raises:
            WeightError: logits are NaN.
        """
        if not len(targets):
            return
        rows = np.arange(len(targets))
        log_base, p_base = log_softmax(base)
        log_other, p_other = log_softmax(other)
        difference = log_base - log_other
        difference *= p_base
        difference[log_base <= _TAIL] = 0
        part = np.empty((len(targets), _COLUMNS), np.float64)
        part[:, _NLL_BASE] = -log_base[rows, targets]
        part[:, _NLL] = -log_other[rows, targets]
        part[:, _KLD] = difference.sum(axis=1, dtype=np.float64)
        part[:, _SAME] = base.argmax(axis=1) == other.argmax(axis=1)
        part[:, _DELTA] = p_other[rows, targets].astype(np.float64) - p_base[rows, targets]
        p_other -= p_base
        part[:, _MOVED] = 0.5 * np.abs(p_other, out=p_other).sum(axis=1, dtype=np.float64)
        if not np.isfinite(part[:, _NLL]).all():
            raise WeightError("the quantized model answers NaN", hint="quantize again with a larger type")
        self._parts.append(part)

    def merge(self, other: Scores) -> None:
        """Take over the positions of `other`."""
        self._parts.extend(other._parts)

    @property
    def positions(self) -> int:
        return sum(len(part) for part in self._parts)

    @property
    def divergences(self) -> Values:
        """KL divergence at each position."""
        return np.concatenate([part[:, _KLD] for part in self._parts]) if self._parts else np.empty(0)

    def statistics(self) -> Statistics | None:
        """The figures, or None where there are too few positions for them."""
        if self.positions < _MIN_POSITIONS:
            return None
        values = np.concatenate(self._parts)
        n = len(values)
        nll, nll_error = _mean(values[:, _NLL])
        base, base_error = _mean(values[:, _NLL_BASE])
        covariance = (np.mean(values[:, _NLL] * values[:, _NLL_BASE]) - nll * base) / (n - 1)
        divergence, divergence_error = _mean(values[:, _KLD])
        squares, squares_error = _mean(values[:, _DELTA] ** 2)
        rms = squares**0.5
        same = float(values[:, _SAME].mean())
        quantiles = np.quantile(values[:, _KLD], [0.5, 0.99, 0.999, 1.0])
        return Statistics(
            positions=n,
            perplexity_base=float(np.exp(base)),
            perplexity=float(np.exp(nll)),
            perplexity_error=float(np.exp(nll)) * nll_error,
            log_ratio=nll - base,
            log_ratio_error=max(nll_error**2 + base_error**2 - 2 * float(covariance), 0.0) ** 0.5,
            divergence=divergence,
            divergence_error=divergence_error,
            divergence_median=float(quantiles[0]),
            divergence_99=float(quantiles[1]),
            divergence_999=float(quantiles[2]),
            divergence_max=float(quantiles[3]),
            same_top=same,
            same_top_error=(same * (1 - same) / (n - 1)) ** 0.5,
            rms_probability_change=rms,
            rms_probability_change_error=0.5 / rms * squares_error if rms else 0.0,
            mean_probability_change=float(values[:, _DELTA].mean()),
            drawn_differently=float(values[:, _MOVED].mean()),
        )


_NLL_BASE, _NLL, _KLD, _SAME, _DELTA, _MOVED, _COLUMNS = range(7)


def log_softmax(logits: Logits) -> tuple[Logits, Logits]:
    """Log-probabilities and probabilities.  # both (n, n_vocab), float32; the caller owns them"""
    shifted: Logits = logits - logits.max(axis=1, keepdims=True)
    chances: Logits = np.exp(shifted)
    total = chances.sum(axis=1, keepdims=True, dtype=np.float64)
    shifted -= np.log(total).astype(np.float32)
    chances /= total.astype(np.float32)
    return shifted, chances


def _mean(values: Values) -> tuple[float, float]:
    """The mean and its standard error."""
    mean = float(values.mean())
    variance = float(np.mean(values**2)) - mean**2
    return mean, (max(variance, 0.0) / (len(values) - 1)) ** 0.5
