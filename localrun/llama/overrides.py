"""Keeps the experts of a mixture in RAM while the rest of each layer lies on the GPU.

Knows llama.cpp's tensor overrides, an array of (pattern, buffer type) that ends with an empty one. Invariant: the
arrays live as long as the object, which must outlive the call that loads the model.
"""

from __future__ import annotations

import ctypes
from typing import Any

_EXPERTS = r"blk\.({})\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""The names of expert tensors of some layers, as llama.cpp's own `--n-cpu-moe` matches them."""


class _Override(ctypes.Structure):
    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


class ExpertsInRam:
    """The override as the loader's parameters want it."""

    def __init__(self, lib: Any, n_layers: int) -> None:
        """For the first `n_layers` layers."""
        buffer_type = lib._lib.ggml_backend_cpu_buffer_type
        buffer_type.restype, buffer_type.argtypes = ctypes.c_void_p, []
        pattern = _EXPERTS.format("|".join(map(str, range(n_layers)))).encode()
        self._array = (_Override * 2)(_Override(pattern, buffer_type()), _Override(None, None))

    @property
    def pointer(self) -> ctypes.c_void_p:
        return ctypes.cast(self._array, ctypes.c_void_p)
