"""Asks the engine's own libraries what they accept: the second opinion for our reader and its tables."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path


def library_file(name: str) -> Path:
    """The shared library `name` (`llama`, `ggml-base`) of the installed engine, without importing it."""
    spec = importlib.util.find_spec("llama_cpp")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "lib"
    return next(folder / f"lib{name}{end}" for end in (".so", ".dylib") if (folder / f"lib{name}{end}").exists())


class _InitParams(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


_LOG_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_silent = _LOG_CALLBACK(lambda *_: None)


class Ggml:
    """The engine's base library: its GGUF reader and its table of tensor types."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL(str(library_file("ggml-base")))
        self.lib.ggml_log_set.argtypes = (_LOG_CALLBACK, ctypes.c_void_p)
        self.lib.ggml_log_set.restype = None
        self.lib.gguf_init_from_file.argtypes = (ctypes.c_char_p, _InitParams)
        self.lib.gguf_init_from_file.restype = ctypes.c_void_p
        self.lib.gguf_free.argtypes = (ctypes.c_void_p,)
        self.lib.gguf_free.restype = None
        self.lib.gguf_get_data_offset.argtypes = (ctypes.c_void_p,)
        self.lib.gguf_get_data_offset.restype = ctypes.c_size_t
        self.lib.ggml_type_name.restype = ctypes.c_char_p
        self.lib.ggml_type_size.restype = ctypes.c_size_t
        self.lib.ggml_blck_size.restype = ctypes.c_int64

    def data_offset(self, path: Path) -> int | None:
        """Where the engine's reader finds the tensor data; None if it refuses the file."""
        self.lib.ggml_log_set(_silent, None)
        context = self.lib.gguf_init_from_file(str(path).encode(), _InitParams(True, None))
        if not context:
            return None
        try:
            return int(self.lib.gguf_get_data_offset(context))
        finally:
            self.lib.gguf_free(context)

    def tensor_type(self, number: int) -> tuple[str, int, int]:
        """(name, block size, bytes a block) of a tensor type."""
        name = self.lib.ggml_type_name(number).decode()
        return name, self.lib.ggml_blck_size(number), self.lib.ggml_type_size(number)
