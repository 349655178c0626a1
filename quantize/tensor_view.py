"""Fields of a `struct ggml_tensor` that the engine hands to a callback, read at known offsets.

The binding declares no such structure, and its layout is not promised: `check_layout` builds real tensors with the
library's own functions and compares every field before the first use. Invariant: nothing is read at an offset that was
not checked in this process.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from quantize.errors import QuantizeError
from quantize.ggml import base_library

_TYPE, _BUFFER, _NE, _NB, _OP, _SRC, _DATA, _NAME = 0, 8, 16, 48, 80, 152, 248, 256
_NAME_BYTES = 64
_F32 = 0
_I32 = 26

_pointer = ctypes.c_void_p
_Number = TypeVar("_Number", np.float32, np.int32)


@dataclass(frozen=True, slots=True)
class Operations:
    """Numbers of the operations in this release of the library."""

    mul_mat: int
    mul_mat_id: int


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor of a running graph. Valid only inside the callback that received its address."""

    address: int

    @property
    def type(self) -> int:
        return ctypes.c_int32.from_address(self.address + _TYPE).value

    @property
    def op(self) -> int:
        return ctypes.c_int32.from_address(self.address + _OP).value

    @property
    def ne(self) -> tuple[int, int, int, int]:
        """Length of each axis, the contiguous one first."""
        a, b, c, d = (ctypes.c_int64 * 4).from_address(self.address + _NE)
        return a, b, c, d

    @property
    def nb(self) -> tuple[int, int, int, int]:
        """Bytes from one element to the next, for each axis."""
        a, b, c, d = (ctypes.c_size_t * 4).from_address(self.address + _NB)
        return a, b, c, d

    @property
    def name(self) -> str:
        raw = ctypes.string_at(self.address + _NAME, _NAME_BYTES)
        return raw.split(b"\0", 1)[0].decode("utf-8", "replace")

    @property
    def data_address(self) -> int | None:
        return _pointer.from_address(self.address + _DATA).value

    @property
    def buffer_address(self) -> int | None:
        return _pointer.from_address(self.address + _BUFFER).value

    def source(self, index: int) -> TensorView:
        address = _pointer.from_address(self.address + _SRC + 8 * index).value
        if address is None:
            raise QuantizeError(f"tensor {self.name} has no operand {index}")
        return TensorView(address)

    def floats(self) -> npt.NDArray[np.float32]:
        """The values in numpy's order of axes; a view where the engine keeps them in main memory, else a copy."""
        return self._array(np.dtype(np.float32), _F32)

    def integers(self) -> npt.NDArray[np.int32]:
        """The same for 32-bit integers."""
        return self._array(np.dtype(np.int32), _I32)

    def _array(self, dtype: np.dtype[_Number], kind: int) -> npt.NDArray[_Number]:
        if self.type != kind:
            raise QuantizeError(f"tensor {self.name} is of ggml type {self.type}, expected {kind}")
        extent = sum((n - 1) * step for n, step in zip(self.ne, self.nb, strict=True)) + dtype.itemsize
        raw = memoryview(self._bytes(extent))
        return np.ndarray(self.ne[::-1], dtype, raw, strides=self.nb[::-1])

    def _bytes(self, size: int) -> ctypes.Array[ctypes.c_char]:
        lib = _functions()
        buffer = self.buffer_address
        if buffer is None or lib.ggml_backend_buffer_is_host(buffer):
            if self.data_address is None:
                raise QuantizeError(f"tensor {self.name} has no data")
            return (ctypes.c_char * size).from_address(self.data_address)
        copy = (ctypes.c_char * size)()
        lib.ggml_backend_tensor_get(self.address, copy, 0, size)
        return copy


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", _pointer), ("no_alloc", ctypes.c_bool))


@functools.cache
def _functions() -> ctypes.CDLL:
    lib = base_library()
    lib.ggml_init.argtypes, lib.ggml_init.restype = [_InitParams], _pointer
    lib.ggml_free.argtypes, lib.ggml_free.restype = [_pointer], None
    lib.ggml_new_tensor_3d.argtypes = [_pointer, ctypes.c_int, *[ctypes.c_int64] * 3]
    lib.ggml_new_tensor_3d.restype = _pointer
    lib.ggml_mul_mat.argtypes, lib.ggml_mul_mat.restype = [_pointer] * 3, _pointer
    lib.ggml_mul_mat_id.argtypes, lib.ggml_mul_mat_id.restype = [_pointer] * 4, _pointer
    lib.ggml_set_name.argtypes, lib.ggml_set_name.restype = [_pointer, ctypes.c_char_p], _pointer
    lib.ggml_op_desc.argtypes, lib.ggml_op_desc.restype = [_pointer], ctypes.c_char_p
    lib.ggml_get_data.argtypes, lib.ggml_get_data.restype = [_pointer], _pointer
    lib.ggml_backend_buffer_is_host.argtypes = [_pointer]
    lib.ggml_backend_buffer_is_host.restype = ctypes.c_bool
    lib.ggml_backend_tensor_get.argtypes = [_pointer, _pointer, ctypes.c_size_t, ctypes.c_size_t]
    lib.ggml_backend_tensor_get.restype = None
    return lib


@functools.cache
def check_layout() -> Operations:
    """Compare every field that is read here with tensors the library made itself.

    Raises:
        QuantizeError: the library's structure is another one than this module knows.
    """
    lib = _functions()
    context = lib.ggml_init(_InitParams(1 << 16, None, False))
    try:
        weight, rows, ids = (lib.ggml_new_tensor_3d(context, kind, *shape) for kind, shape in _SAMPLES)
        lib.ggml_set_name(weight, b"blk.7.layout.weight")
        product = TensorView(lib.ggml_mul_mat(context, weight, rows))
        chosen = TensorView(lib.ggml_mul_mat_id(context, weight, rows, ids))
        view = TensorView(weight)
        facts = {
            "name": view.name == "blk.7.layout.weight",
            "shape": view.ne == (32, 5, 3, 1),
            "strides": view.nb == (4, 128, 640, 1920),
            "type": view.type == _F32 and TensorView(ids).type == _I32,
            "data": view.data_address == lib.ggml_get_data(weight),
            "buffer": view.buffer_address is None,
            "operands": [product.source(i).address for i in (0, 1)] == [weight, rows]
            and [chosen.source(i).address for i in (0, 1, 2)] == [weight, rows, ids],
            "operations": lib.ggml_op_desc(product.address) == b"MUL_MAT"
            and lib.ggml_op_desc(chosen.address) == b"MUL_MAT_ID"
            and 0 < product.op < 200
            and 0 < chosen.op < 200,
        }
        wrong = [name for name, holds in facts.items() if not holds]
        if wrong:
            raise QuantizeError(
                f"this release of the engine lays out its tensors differently ({', '.join(wrong)})",
                hint="install the llama-cpp-python release that localrun pins, or use --imatrix off",
            )
        return Operations(product.op, chosen.op)
    finally:
        lib.ggml_free(context)


_SAMPLES = ((_F32, (32, 5, 3)), (_F32, (32, 2, 3)), (_I32, (2, 3, 1)))
"""(type, shape): three expert matrices, their input rows, and which experts each of three tokens goes to."""
