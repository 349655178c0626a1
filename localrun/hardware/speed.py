"""How fast a model can decode here: bytes that one token reads, over the bytes a second that memory delivers.

Knows shapes and bandwidth. A bound, not a promise: decoding is bound by memory (the roofline model of Williams,
Waterman and Patterson), and small models on few cores stay far below it. Once `bench` has measured a model, the
measured figure stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from localrun.hardware.footprint import ContextSize, read_bytes_per_token
from localrun.hardware.shape import ModelShape


@dataclass(frozen=True, slots=True)
class SpeedBound:
    """At most so many tokens a second behind `depth` others."""

    depth: int
    bytes_per_token: int
    tokens_per_second: float


def speed_bound(shape: ModelShape, context: ContextSize, depth: int, bandwidth: float) -> SpeedBound:
    """The roofline of decoding at `depth`; `bandwidth` is in bytes a second."""
    n_bytes = read_bytes_per_token(shape, context, depth)
    return SpeedBound(depth, n_bytes, bandwidth / n_bytes if n_bytes else 0.0)
