"""llama.cpp itself, asked what it would do: the types its quantizer chooses, and the file it writes.

The type choice has no C interface; the library exports it as C++ functions for its own tests, found here by their
mangled names.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quantize.ggml import library_folder
from quantize.runtime import library

api = library().api

_lib = ctypes.CDLL(str(library_folder() / "libllama.so"))
_base = ctypes.CDLL(str(library_folder() / "libggml-base.so"))


class _ModelDesc(ctypes.Structure):
    _fields_ = (
        ("architecture", ctypes.c_char_p),
        *(
            (name, ctypes.c_uint32)
            for name in ("n_embd", "n_ff", "n_layer", "n_head", "n_head_kv", "n_expert", "k", "v")
        ),
    )


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


def _bind(lib: ctypes.CDLL, name: str, result: type | None, *arguments: type) -> ctypes._NamedFuncPointer:
    function = getattr(lib, name)
    function.restype, function.argtypes = result, list(arguments)
    return function


_pointer = ctypes.c_void_p
_from_metadata = _bind(_lib, "_Z31llama_quant_model_from_metadataPK22llama_quant_model_desc", _pointer, _pointer)
_init = _bind(_lib, "_Z16llama_quant_initPK11llama_modelPK27llama_model_quantize_params", _pointer, _pointer, _pointer)
_free = _bind(_lib, "_Z16llama_quant_freeP19quantize_state_impl", None, _pointer)
_allows = _bind(
    _lib,
    "_Z38llama_quant_tensor_allows_quantizationPK19quantize_state_implPK11ggml_tensor",
    ctypes.c_bool,
    _pointer,
    _pointer,
)
_compute = _bind(
    _lib,
    "_Z25llama_quant_compute_typesP19quantize_state_impl11llama_ftypePP11ggml_tensorP9ggml_typem",
    None, _pointer, ctypes.c_int, _pointer, _pointer, ctypes.c_size_t,
)  # fmt: skip
_ggml_init = _bind(_base, "ggml_init", _pointer, _InitParams)
_ggml_free = _bind(_base, "ggml_free", None, _pointer)
_new_tensor = _bind(_base, "ggml_new_tensor_4d", _pointer, _pointer, ctypes.c_int, *[ctypes.c_int64] * 4)
_set_name = _bind(_base, "ggml_set_name", _pointer, _pointer, ctypes.c_char_p)


@dataclass(frozen=True)
class Spec:
    """A model as llama.cpp's type choice sees it."""

    architecture: str
    n_layer: int
    n_head: int
    n_head_kv: int
    n_expert: int
    tensors: dict[str, tuple[int, ...]]
    """Name → shape in numpy's order."""


def chosen_types(spec: Spec, file_types: list[int]) -> dict[int, dict[str, int]]:
    """File type → name → ggml type, for the tensors that llama.cpp quantizes."""
    desc = _ModelDesc(
        spec.architecture.encode(), 256, 512, spec.n_layer, spec.n_head, spec.n_head_kv, spec.n_expert, 64, 64
    )
    model = _from_metadata(ctypes.addressof(desc))
    params = api.llama_model_quantize_default_params()
    state = _init(model, ctypes.addressof(params))
    context = _ggml_init(_InitParams(len(spec.tensors) * 512 + 4096, None, True))
    try:
        handles: dict[str, int] = {}
        for name, shape in sorted(spec.tensors.items(), key=lambda item: _engine_order(item[0])):
            dims = [*reversed(shape), 1, 1, 1, 1][:4]
            handle = _new_tensor(context, 0, *dims)
            _set_name(handle, name.encode())
            if _allows(state, handle):
                handles[name] = handle
        tensors = (ctypes.c_void_p * len(handles))(*handles.values())
        answers: dict[int, dict[str, int]] = {}
        for file_type in file_types:
            types = (ctypes.c_int * len(handles))()
            _compute(state, file_type, tensors, types, len(handles))
            answers[file_type] = dict(zip(handles, types, strict=True))
        return answers
    finally:
        _free(state)
        _ggml_free(context)
        api.llama_model_free(model)


def _engine_order(name: str) -> tuple[int, str]:
    layer = int(name.split(".")[1]) if name.startswith("blk.") else -1
    return layer, name


def llama_quantize(
    source: Path,
    target: Path,
    file_type: int,
    *,
    pure: bool = False,
    matrix: dict[str, np.ndarray] | None = None,
    requantize: bool = False,
) -> None:
    """What `llama-quantize` does, through the library's C interface."""
    params = api.llama_model_quantize_default_params()
    params.ftype, params.pure, params.nthread, params.allow_requantize = file_type, pure, 1, requantize
    if matrix is not None:
        entries = (api.llama_model_imatrix_data * (len(matrix) + 1))()
        keep = {name: np.ascontiguousarray(values, dtype=np.float32) for name, values in matrix.items()}
        for entry, (name, values) in zip(entries, keep.items(), strict=False):
            entry.name = name.encode()
            entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            entry.size = values.size
        params.imatrix = ctypes.cast(entries, type(params.imatrix))
    if api.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params)) != 0:
        raise RuntimeError(f"llama_model_quantize refused {source}")
