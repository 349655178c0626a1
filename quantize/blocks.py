"""Rows of one tensor → blocks of its type: the place where rounding happens.

Knows the importance of columns and libggml's rounding; no files. Invariant: what comes out decodes to finite numbers,
or an error names the tensor. Other ways of rounding (with error compensation) belong here, beside `round_rows`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from quantize import ggml
from quantize.errors import WeightError
from quantize.model import Rows, Tensor
from quantize.types import IGNORE_MATRIX

T = GGMLQuantizationType

_F16_MAX = 65_504.0

MatrixWeights = npt.NDArray[np.float32]  # (n_matrices, n_cols)


class ColumnWeights(Protocol):
    """How much the error of each column matters."""

    def of(self, tensor: Tensor, kind: GGMLQuantizationType) -> MatrixWeights | None:
        """Weights for a tensor's matrices, or None for libggml's plain search."""


class PlainSearch:
    """No weights at all: what `llama-quantize` does without an importance matrix, to the byte."""

    def of(self, tensor: Tensor, kind: GGMLQuantizationType) -> MatrixWeights | None:
        return ones(tensor) if ggml.requires_weights(kind) else None


def ones(tensor: Tensor) -> MatrixWeights:
    """Equal weights. They turn on libggml's better search, which a missing matrix does not."""
    return np.ones((n_matrices(tensor), tensor.n_cols), dtype=np.float32)


def n_matrices(tensor: Tensor) -> int:
    """Matrices stacked in a tensor (experts); each has its own importance."""
    return tensor.n_rows // tensor.shape[-2] if len(tensor.shape) > 2 else 1


def round_rows(
    tensor: Tensor, kind: GGMLQuantizationType, rows: Rows, first_row: int, weights: MatrixWeights | None
) -> ggml.Blocks:
    """Blocks of these rows of a tensor. The caller owns the result.

    Args:
        rows: (n, n_cols), the rows from `first_row` on.
        weights: for all matrices of the tensor; rows may lie in several of them.

    Raises:
        WeightError: a value is NaN or infinite, or too large for the type.
    """
    _check_finite(tensor, kind, rows)
    if weights is None or kind in IGNORE_MATRIX:
        blocks = ggml.quantize_rows(kind, rows)
    else:
        rows_per_matrix = tensor.n_rows // weights.shape[0]
        parts = []
        position = 0
        while position < len(rows):
            matrix, within = divmod(first_row + position, rows_per_matrix)
            stop = min(len(rows), position + rows_per_matrix - within)
            parts.append(ggml.quantize_rows(kind, rows[position:stop], weights[matrix]))
            position = stop
        blocks = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if not ggml.is_valid(kind, blocks):
        raise WeightError(
            f"tensor {tensor.name} overflows {kind.name.lower()}: a scale is infinite",
            hint="keep it in bf16 with --tensor",
        )
    return blocks


def copy_rows(tensor: Tensor, kind: GGMLQuantizationType, start: int, stop: int) -> ggml.Blocks:
    """Rows as they are stored, after a look for damage.

    Raises:
        WeightError: a value or a scale is NaN or infinite.
    """
    assert tensor.read_raw is not None
    raw = np.ascontiguousarray(tensor.read_raw(start, stop)).view(np.uint8).reshape(stop - start, -1)
    if not ggml.is_valid(kind, raw):
        raise WeightError(f"tensor {tensor.name} holds NaN or infinite values", hint="the checkpoint is damaged")
    return raw


def _check_finite(tensor: Tensor, kind: GGMLQuantizationType, rows: Rows) -> None:
    if not rows.size:
        return
    low, high = float(rows.min()), float(rows.max())
    if not np.isfinite(low) or not np.isfinite(high):
        what = "NaN" if np.isnan(low) or np.isnan(high) else "an infinite value"
        raise WeightError(
            f"tensor {tensor.name} holds {what}", hint="the checkpoint is damaged: fetch or train it again"
        )
    limit = _F16_MAX if kind == T.F16 else ggml.LATTICE_MAX if kind in ggml.LATTICE else np.inf
    if max(-low, high) > limit:
        raise WeightError(
            f"tensor {tensor.name} holds {max(-low, high):g}, which overflows {kind.name.lower()}",
            hint="use bf16 or f32 instead",
        )
