"""The devices that the engine's library sees, and the memory of each.

Knows ggml's device interface (`ggml-backend.h`), whose functions the binding does not declare; starts nothing on a
device. Invariant: what is returned is plain values, so nothing of C outlives the call.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from localrun.hardware.devices import Device, DeviceKind
from localrun.llama.library import bindings

# enum ggml_backend_dev_type: 0 CPU, 1 GPU, 2 integrated GPU, 3 accelerator library (BLAS, AMX), 4 meta.
_GPU_LIBRARY = re.compile(r"(?:lib)?ggml-(?:cuda|hip|metal|vulkan|sycl|opencl|musa|cann|webgpu)\b")
_KINDS: dict[int, DeviceKind] = {1: "gpu", 2: "unified"}
RPC = "RPC"
"""The name of the backend whose devices are on other machines."""


class _Properties(ctypes.Structure):
    """`ggml_backend_dev_props`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("capabilities", ctypes.c_bool * 5),
    )


def gpu_is_compiled_in() -> bool:
    """Whether the engine was built with a GPU backend, told by its files alone: nothing is loaded."""
    spec = importlib.util.find_spec("llama_cpp")
    folders = (spec.submodule_search_locations if spec is not None else None) or []
    files = (file.name for folder in folders for file in Path(folder, "lib").glob("*ggml-*"))
    return any(_GPU_LIBRARY.match(name) for name in files)


def gpu_devices() -> list[Device]:
    """Every GPU that a load would use, with its memory now, in the engine's own order (`llama_prepare_model_devices`).

    RPC servers come first, a card that two backends see counts once, and integrated GPUs count where there is no
    other. Empty where the engine was built for the CPU.
    """
    lib = _device_functions()
    remote: list[Device] = []
    cards: dict[bytes | int, Device] = {}
    integrated: list[Device] = []
    for index in range(lib.ggml_backend_dev_count()):
        handle = ctypes.c_void_p(lib.ggml_backend_dev_get(index))
        kind = _KINDS.get(lib.ggml_backend_dev_type(handle))
        if kind is None:
            continue
        properties = _Properties()
        lib.ggml_backend_dev_get_props(handle, ctypes.byref(properties))
        device = _device(lib, handle, kind)
        if device.backend == RPC:
            remote.append(device)
        elif kind == "gpu":
            cards.setdefault(properties.device_id or index, device)
        elif not integrated or integrated[0].backend == device.backend:
            integrated.append(device)
    # Metal calls itself a GPU; its memory is the machine's.
    local = [replace(d, kind="unified") if _is_metal(d) else d for d in cards.values()]
    return remote + (local or integrated)


def _device(lib: Any, handle: ctypes.c_void_p, kind: DeviceKind) -> Device:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    lib.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    backend = ctypes.c_void_p(lib.ggml_backend_dev_backend_reg(handle))
    return Device(
        name=_text(lib.ggml_backend_dev_description(handle)) or _text(lib.ggml_backend_dev_name(handle)),
        kind=kind,
        backend=_text(lib.ggml_backend_reg_name(backend)),
        total=total.value,
        free=free.value,
        splits_rows=bool(lib.ggml_backend_reg_get_proc_address(backend, b"ggml_backend_split_buffer_type")),
    )


def _is_metal(device: Device) -> bool:
    return device.backend.lower().startswith(("mtl", "metal"))


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
        "ggml_backend_dev_get_props": (None, [pointer, ctypes.POINTER(_Properties)]),
        "ggml_backend_dev_backend_reg": (pointer, [pointer]),
        "ggml_backend_reg_count": (ctypes.c_size_t, []),
        "ggml_backend_reg_get": (pointer, [ctypes.c_size_t]),
        "ggml_backend_reg_name": (ctypes.c_char_p, [pointer]),
        "ggml_backend_reg_get_proc_address": (pointer, [pointer, ctypes.c_char_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
