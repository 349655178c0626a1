"""The importance matrix: for every weight matrix, the sum of squared activations that its columns were multiplied by.

Knows sums and counts; no files and no engine. Invariant: sums are finite and never negative, and shapes agree.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from quantize.blocks import MatrixWeights, n_matrices, ones
from quantize.errors import RecipeError
from quantize.model import Tensor
from quantize.recipe.facts import layer_of

_SHRINK_TOKENS = 32.0
"""Tokens that an expert must have seen for its own figures to weigh as much as its layer's mean."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Figures of one weight tensor."""

    sums: npt.NDArray[np.float32]  # (n_matrices, n_cols)
    counts: npt.NDArray[np.float32]  # (n_matrices,), rows that were summed up

    def mean_squares(self) -> MatrixWeights:
        """llama-quantize's weights: the mean of the squares; 1 for a matrix that saw nothing."""
        counts = self.counts[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            means = self.sums / counts
        return np.where(counts > 0, means, np.float32(1)).astype(np.float32)

    def smoothed(self) -> MatrixWeights:
        """The mean squares, with experts that saw few tokens drawn towards the mean of all experts.

        An expert without data gets the mean of its layer instead of 1, which would call all its columns equal.
        """
        if len(self.counts) == 1:
            return self.mean_squares()
        total: MatrixWeights = self.sums.sum(axis=0) / np.float32(max(float(self.counts.sum()), 1.0))
        weight = self.counts / (self.counts + _SHRINK_TOKENS)
        own = self.mean_squares()
        mixed: MatrixWeights = own * weight[:, None] + total[None, :] * (1 - weight[:, None])
        return mixed.astype(np.float32)


@dataclass(frozen=True, slots=True)
class ImportanceMatrix:
    """All entries, by the name of their tensor, and where they come from."""

    entries: dict[str, Entry]
    datasets: tuple[str, ...] = ()
    chunk_count: int = 0
    chunk_size: int = 512
    source: str = field(default="", compare=False)
    """The file it was read from, if any."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.entries)

    @property
    def digest(self) -> str:
        """Of everything that influences the weights."""
        sha = hashlib.sha256()
        for name in sorted(self.entries):
            entry = self.entries[name]
            sha.update(name.encode() + entry.sums.tobytes() + entry.counts.tobytes())
        return sha.hexdigest()

    def renumbered(self, old_of_new: dict[int, int]) -> ImportanceMatrix:
        """The matrix for a model whose layers were renumbered; `old_of_new[new]` is the layer's number in this one."""

        new_of_old = {old: new for new, old in old_of_new.items()}
        entries = {}
        for name, entry in self.entries.items():
            layer = layer_of(name)
            if layer is None:
                entries[name] = entry
            elif layer in new_of_old:
                entries[name.replace(f"blk.{layer}.", f"blk.{new_of_old[layer]}.", 1)] = entry
        return replace(self, entries=entries)


class MatrixColumns:
    """Column weights from an importance matrix.

    `exact` is what llama-quantize does, to the byte: no weights where the matrix has no entry, and 1 for an expert
    without data. Otherwise such tensors get ones, which turn on the better search, and such experts their layer's mean.
    """

    def __init__(self, matrix: ImportanceMatrix, *, exact: bool = False) -> None:
        self._matrix = matrix
        self._exact = exact
        self._made: dict[str, MatrixWeights] = {}

    def of(self, tensor: Tensor, kind: GGMLQuantizationType) -> MatrixWeights | None:
        """See `blocks.ColumnWeights`.

        Raises:
            RecipeError: the entry has another shape than the tensor: the matrix belongs to another model.
        """
        found = self._made.get(tensor.name)
        if found is not None:
            return found
        entry = self._matrix.entries.get(tensor.name)
        if entry is None:
            return None if self._exact else ones(tensor)
        expected = (n_matrices(tensor), tensor.n_cols)
        if len(entry.counts) == 1 and entry.sums.size == expected[0] * expected[1]:
            # Older files keep one count for all experts.
            entry = Entry(entry.sums.reshape(expected), np.repeat(entry.counts, expected[0]))
        if entry.sums.shape != expected:
            raise RecipeError(
                f"the importance matrix has {entry.sums.shape} figures for {tensor.name}, which needs {expected}",
                hint="it was made from another model: use --imatrix auto",
            )
        made = entry.mean_squares() if self._exact else entry.smoothed()
        self._made[tensor.name] = made
        return made
