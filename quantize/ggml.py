"""libggml-base: the C functions that turn rows of float32 into blocks and back.

The one module that loads that library (it travels inside the llama-cpp-python wheel, whose Python code is not imported
here). Its functions end the process when an argument is wrong, so everything is checked before a call.
Invariant: whatever a caller passes, the answer is a result or an exception, never an abort. ctypes releases the GIL
during a call, so worker threads quantize in parallel.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from quantize.errors import QuantizeError
from quantize.model import Rows

Blocks = npt.NDArray[np.uint8]  # (n_rows, bytes_per_row)
Weights = npt.NDArray[np.float32]  # (n_cols,)

LATTICE = frozenset(kind for kind in GGMLQuantizationType if kind.name.startswith(("IQ1", "IQ2", "IQ3")))
"""Types that are found by a search on a lattice, which ends the process where its sums overflow or have no weight."""

LATTICE_MAX = 1e7
"""The largest weight that such a type can be asked for; its F16 scale could not hold more by far."""

_MAX_ENERGY = 1e15
"""Bound for importance times squared weight: 480 times that, squared, still fits in a float."""

_NAMES = {"win32": "ggml-base.dll", "darwin": "libggml-base.dylib"}


class _TypeTraits(ctypes.Structure):
    """`struct ggml_type_traits` up to the member that is needed; compared with the library's own answers on loading."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("blck_size", ctypes.c_int64),
        ("blck_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.c_void_p),
    )


_ToFloat = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def library_folder() -> Path:
    """Where the wheel of llama-cpp-python keeps its shared libraries.

    Raises:
        QuantizeError: llama-cpp-python is not installed.
    """
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise QuantizeError("llama-cpp-python is not installed", hint="pip install llama-cpp-python")
    return Path(spec.origin).parent / "lib"


@functools.cache
def base_library() -> ctypes.CDLL:
    """libggml-base, loaded once."""
    path = library_folder() / _NAMES.get(sys.platform, "libggml-base.so")
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise QuantizeError(f"cannot load {path}: {error}", hint="reinstall llama-cpp-python") from error
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    lib.ggml_quantize_requires_imatrix.argtypes = [ctypes.c_int]
    lib.ggml_quantize_requires_imatrix.restype = ctypes.c_bool
    lib.ggml_validate_row_data.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    lib.ggml_validate_row_data.restype = ctypes.c_bool
    lib.ggml_get_type_traits.argtypes = [ctypes.c_int]
    lib.ggml_get_type_traits.restype = ctypes.POINTER(_TypeTraits)
    lib.ggml_blck_size.argtypes = lib.ggml_type_size.argtypes = [ctypes.c_int]
    lib.ggml_blck_size.restype = ctypes.c_int64
    lib.ggml_type_size.restype = ctypes.c_size_t
    return lib


@functools.cache
def _traits(kind: GGMLQuantizationType) -> _TypeTraits:
    """This type's entry of libggml's table, after comparing our sizes with the library's.

    Raises:
        QuantizeError: the library disagrees about the type (another release of it).
    """
    lib = base_library()
    entry: _TypeTraits = lib.ggml_get_type_traits(int(kind)).contents
    ours = GGML_QUANT_SIZES[kind]
    theirs = (lib.ggml_blck_size(int(kind)), lib.ggml_type_size(int(kind)))
    if ours != theirs or (entry.blck_size, entry.type_size) != theirs:
        raise QuantizeError(
            f"libggml stores {theirs[0]} {kind.name} weights in {theirs[1]} bytes, expected {ours[0]} in {ours[1]}",
            hint="install the llama-cpp-python release that localrun pins",
        )
    return entry


def requires_weights(kind: GGMLQuantizationType) -> bool:
    """Whether libggml cannot quantize to this type without an importance matrix."""
    return bool(base_library().ggml_quantize_requires_imatrix(int(kind)))


def row_bytes(kind: GGMLQuantizationType, n_cols: int) -> int:
    """Bytes of one row of `n_cols` values.

    Raises:
        QuantizeError: the row is not a whole number of blocks.
    """
    block, size = GGML_QUANT_SIZES[kind]
    if n_cols <= 0 or n_cols % block:
        raise QuantizeError(f"a row of {n_cols} values is no whole number of {kind.name} blocks of {block}")
    return int(n_cols // block * size)


def quantize_rows(kind: GGMLQuantizationType, rows: Rows, weights: Weights | None = None) -> Blocks:
    """Round rows to blocks of a type (`ggml_quantize_chunk`). The caller owns the result.

    Args:
        kind: the type; F32, F16 and BF16 are conversions.
        rows: (n_rows, n_cols) float32, finite.
        weights: (n_cols,) how much each column's error matters; None lets libggml use its plain search.

    Raises:
        QuantizeError: sizes do not fit the type, or the type needs weights and there are none.
    """
    size = row_bytes(kind, rows.shape[1])
    _traits(kind)
    if rows.dtype != np.float32 or rows.ndim != 2 or not rows.flags.c_contiguous:
        raise QuantizeError(f"rows must be contiguous float32 in two dimensions, not {rows.dtype} {rows.shape}")
    if weights is None and requires_weights(kind):
        raise QuantizeError(f"{kind.name} cannot be computed without an importance matrix")
    if weights is not None:
        if weights.shape != (rows.shape[1],):
            raise QuantizeError(f"{weights.shape} importance weights for rows of {rows.shape[1]} values")
        weights = np.ascontiguousarray(weights, dtype=np.float32)
    if rows.size and (weights is not None or kind in LATTICE):
        weights = _safe_weights(kind, rows, weights)
    out = np.empty((rows.shape[0], size), dtype=np.uint8)
    if rows.shape[0] == 0:
        return out
    address = None if weights is None else weights.ctypes.data
    base_library().ggml_quantize_chunk(int(kind), rows.ctypes.data, out.ctypes.data, 0, *rows.shape, address)
    return out


def _safe_weights(kind: GGMLQuantizationType, rows: Rows, weights: Weights | None) -> Weights | None:
    """Weights with which no sum overflows, and for lattice types none that is zero. Usual weights stay as they are.

    Raises:
        QuantizeError: the weights are not finite or negative, or the rows are not finite or too large for a lattice.
    """
    largest = max(float(rows.max()), -float(rows.min()))
    if kind in LATTICE and not largest <= LATTICE_MAX:  # also where it is NaN
        raise QuantizeError(f"{kind.name} cannot hold {largest:g}")
    if weights is None:
        return None
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise QuantizeError("importance weights must be finite and not negative")
    top = float(weights.max())
    if top * min(largest, LATTICE_MAX) ** 2 > _MAX_ENERGY:
        weights = weights / np.float32(top)
    if kind in LATTICE and weights.min() == 0:
        floor = np.float32(max(float(weights.mean()) * 1e-6, float(np.finfo(np.float32).tiny)))
        weights = np.maximum(weights, floor)
    return weights


def dequantize_rows(kind: GGMLQuantizationType, blocks: Blocks, n_cols: int) -> Rows:
    """Rows of float32 from their blocks: (n_rows, row_bytes) uint8 → (n_rows, n_cols).

    Raises:
        QuantizeError: the sizes do not match, or libggml cannot decode the type.
    """
    if blocks.shape[1] != row_bytes(kind, n_cols) or not blocks.flags.c_contiguous:
        raise QuantizeError(f"{blocks.shape[1]} bytes are no row of {n_cols} {kind.name} values")
    if kind == GGMLQuantizationType.F32:
        return blocks.view(np.float32)
    to_float = _traits(kind).to_float
    if not to_float:
        raise QuantizeError(f"libggml cannot decode {kind.name}")
    out = np.empty((blocks.shape[0], n_cols), dtype=np.float32)
    _ToFloat(to_float)(blocks.ctypes.data, out.ctypes.data, out.size)
    return out


def is_valid(kind: GGMLQuantizationType, blocks: Blocks) -> bool:
    """Whether no block has a scale that is NaN or infinite."""
    return bool(base_library().ggml_validate_row_data(int(kind), blocks.ctypes.data, blocks.nbytes))
