"""What lies between reading a checkpoint and writing a GGUF file: metadata, and tensors that can be read by rows.

Knows no file format. Invariant: nothing here holds weights; `read` fetches what is asked for and forgets it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType, GGUFValueType

Rows = npt.NDArray[np.float32]  # (n_rows, n_cols), C-contiguous


@dataclass(frozen=True, slots=True)
class MetadataValue:
    """One key's value with its GGUF type; `element` is the type of an array's elements."""

    value: object
    type: GGUFValueType
    element: GGUFValueType | None = None


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the file to be written, not yet read.

    `shape` is in numpy's order: the last axis is the contiguous one that quantization blocks lie on (GGUF and ggml
    print it reversed). A tensor is seen as `n_rows` rows of `shape[-1]` values.
    """

    name: str
    """Its GGUF name, e.g. `blk.0.attn_q.weight`."""
    shape: tuple[int, ...]
    source_type: GGMLQuantizationType
    """How it is stored at the source (BF16, F16, F32, or a block type of a GGUF source)."""
    read: Callable[[int, int], Rows]
    """`read(start, stop)`: these rows, transformed, as float32. Callable from many threads at once."""
    keep_type: GGMLQuantizationType | None = None
    """The type it must be written in whatever the recipe says (norms F32, MXFP4 that is repacked without loss)."""
    read_raw: Callable[[int, int], npt.NDArray[np.uint8]] | None = None
    """`read_raw(start, stop)`: the rows' bytes in `keep_type` or `source_type`, where no arithmetic is needed."""
    row_multiple: int = 1
    """`read` wants row ranges that start and end at multiples of this (a head, for permuted matrices)."""

    @property
    def n_cols(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def n_rows(self) -> int:
        return int(np.prod(self.shape[:-1], dtype=np.int64)) if len(self.shape) > 1 else 1

    @property
    def n_values(self) -> int:
        return self.n_rows * self.n_cols


@dataclass(frozen=True, slots=True)
class Model:
    """A model to be written: metadata in the order of the file, tensors in the order of the file."""

    architecture: str
    metadata: dict[str, MetadataValue]
    tensors: tuple[Tensor, ...]
    source_bytes: int
    """Size of the weights at the source."""
    warnings: tuple[str, ...] = ()
    tied_output: bool = False
    """The output head is the token embedding (there is no `output.weight`)."""
    notes: dict[str, str] = field(default_factory=dict)
