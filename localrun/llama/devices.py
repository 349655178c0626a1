"""The devices that the engine's library sees, and the memory of each.

Knows ggml's device interface (`ggml-backend.h`), whose functions the binding does not declare; starts nothing on a
device. Invariant: what is returned is plain values, so nothing of C outlives the call.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from pathlib import Path
from typing import Any

from localrun.hardware.devices import Device, DeviceKind
from localrun.llama.library import bindings

# enum ggml_backend_dev_type: 0 CPU, 1 GPU, 2 integrated GPU, 3 accelerator library (BLAS, AMX), 4 meta.
_GPU_LIBRARY = re.compile(r"(?:lib)?ggml-(?:cuda|hip|metal|vulkan|sycl|opencl|musa|cann|webgpu)\b")
_KINDS: dict[int, DeviceKind] = {1: "gpu", 2: "unified"}


def gpu_is_compiled_in() -> bool:
    """Whether the engine was built with a GPU backend, told by its files alone: nothing is loaded."""
    spec = importlib.util.find_spec("llama_cpp")
    folders = (spec.submodule_search_locations if spec is not None else None) or []
    files = (file.name for folder in folders for file in Path(folder, "lib").glob("*ggml-*"))
    return any(_GPU_LIBRARY.match(name) for name in files)


def gpu_devices() -> list[Device]:
    """Every GPU that the engine could use, with its memory now. Empty where the engine was built for the CPU."""
    lib = _device_functions()
    found = []
    for index in range(lib.ggml_backend_dev_count()):
        handle = ctypes.c_void_p(lib.ggml_backend_dev_get(index))
        kind = _KINDS.get(lib.ggml_backend_dev_type(handle))
        if kind is None:
            continue
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        lib.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
        backend = _text(lib.ggml_backend_reg_name(ctypes.c_void_p(lib.ggml_backend_dev_backend_reg(handle))))
        if backend.lower().startswith(("mtl", "metal")):
            kind = "unified"  # Metal calls itself a GPU; its memory is the machine's
        found.append(
            Device(
                name=_text(lib.ggml_backend_dev_description(handle)) or _text(lib.ggml_backend_dev_name(handle)),
                kind=kind,
                backend=backend,
                total=total.value,
                free=free.value,
            )
        )
    return found


def backends() -> list[str]:
    """Names of the backends compiled in (`CPU`, `CUDA`, `MTL`, `Vulkan`, …)."""
    lib = _device_functions()
    names = (
        _text(lib.ggml_backend_reg_name(ctypes.c_void_p(lib.ggml_backend_reg_get(i))))
        for i in range(lib.ggml_backend_reg_count())
    )
    return list(dict.fromkeys(names))


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def _device_functions() -> Any:
    """ggml's library with the types of the functions used here. It is found through the binding's own handle."""
    library = bindings()._lib
    pointer = ctypes.c_void_p
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "ggml_backend_dev_count": (ctypes.c_size_t, []),
        "ggml_backend_dev_get": (pointer, [ctypes.c_size_t]),
        "ggml_backend_dev_type": (ctypes.c_int, [pointer]),
        "ggml_backend_dev_name": (ctypes.c_char_p, [pointer]),
        "ggml_backend_dev_description": (ctypes.c_char_p, [pointer]),
        "ggml_backend_dev_memory": (None, [pointer, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)]),
        "ggml_backend_dev_backend_reg": (pointer, [pointer]),
        "ggml_backend_reg_count": (ctypes.c_size_t, []),
        "ggml_backend_reg_get": (pointer, [ctypes.c_size_t]),
        "ggml_backend_reg_name": (ctypes.c_char_p, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
