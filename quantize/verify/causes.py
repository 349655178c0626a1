"""Why answers change: the weights, a smaller KV cache, or the sampler, in one unit.

The unit is the share of tokens that would be drawn differently: half the summed difference between two distributions,
averaged over positions. The base model with an F16 cache and plain sampling is the reference for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quantize.runtime import Logits
from quantize.verify.scores import log_softmax


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """A usual chain: temperature, then cuts at k tokens, at a mass of p, and at a share of the best token."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05

    def __str__(self) -> str:
        return f"temperature {self.temperature:g}, top-k {self.top_k}, top-p {self.top_p:g}, min-p {self.min_p:g}"


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason, alone: everything else as in the reference."""

    name: str
    drawn_differently: float
    """0 to 1."""
    divergence: float | None = None
    """Mean KL divergence, where it is finite by nature (a sampler that cuts tokens makes it infinite)."""


def sampler_effect(logits: Logits, settings: SamplerSettings) -> float:
    """Mean share of draws that the settings alone change, over these positions.  # logits (n, n_vocab)"""
    chances = log_softmax(logits)[1].astype(np.float64)
    k = min(settings.top_k, chances.shape[1])
    best = np.argpartition(chances, -k, axis=1)[:, -k:]
    kept = np.take_along_axis(chances, best, axis=1)
    order = np.argsort(-kept, axis=1)
    kept = np.take_along_axis(kept, order, axis=1)  # (n, k), falling
    # llama.cpp cuts before it applies the temperature.
    within = kept / kept.sum(axis=1, keepdims=True)
    before = np.cumsum(within, axis=1) - within
    keep = (before < settings.top_p) & (within >= settings.min_p * within[:, :1])
    warmed = np.where(keep, within ** (1 / settings.temperature), 0)
    warmed /= warmed.sum(axis=1, keepdims=True)
    # Distributions both sum to one, so the excess on one side is half the difference.
    return float(np.maximum(warmed - kept, 0).sum(axis=1).mean())
