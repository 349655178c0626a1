"""Loads llama.cpp's shared library and tells what it can do.

Knows the binding's module and the process environment; knows no model. Invariant: the C library never writes to
stderr by itself (its log goes to `logging`; its last words are one line), and OpenMP's spin time is bounded before the
runtime is loaded.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import sys
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from localrun.errors import EngineError
from localrun.llama.fatal import end_with_a_line
from localrun.llama.log import EngineLog
from localrun.llama.openmp import bound_spinning

logger = logging.getLogger(__name__)

_LET_GO_S = 0.005
"""Long enough for a thread that already waits to hand over its line, and go on."""


@lru_cache(maxsize=1)
def engine_log() -> EngineLog:
    """The one receiver of the library's log."""
    return EngineLog()


@lru_cache(maxsize=1)
def bindings() -> Any:
    """The module of C functions (`llama_cpp.llama_cpp`), initialised.

    Raises `EngineError` where the package is missing or its library cannot be loaded.
    """
    bound_spinning()
    try:
        module = _import_bindings()
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineError(
            f"llama.cpp's library could not be loaded: {error}",
            hint="reinstall it: pip install --force-reinstall --no-cache-dir llama-cpp-python",
        ) from error
    # A library stays silent unless its user configures logging; the default handler would write to stderr.
    logging.getLogger("localrun").addHandler(logging.NullHandler())
    module.llama_log_set(engine_log().callback(module.llama_log_callback), ctypes.c_void_p(0))
    end_with_a_line(module._lib)
    module.llama_backend_init()
    return module


def listen() -> EngineLog:
    """The log, with its errors forgotten, hearing the engine from now on, whoever heard it before.

    Call before an operation whose failure will be explained. Another user of the library in this process (`quantize`,
    for example) may have taken its log meanwhile.
    """
    module, log = bindings(), engine_log()
    log.clear_errors()
    if not log.is_off:
        module.llama_log_set(log.callback(module.llama_log_callback), ctypes.c_void_p(0))
    return log


@contextmanager
def silent_engine() -> Iterator[None]:
    """Inside the block the engine's lines are dropped in C, on all threads.

    For work that holds the interpreter for long while a model is being loaded: a load writes a thousand lines, and
    would wait for the interpreter at the next one. Does nothing where somebody listens to every line (`--debug`), nor
    on Windows, where no C function is found without its library's name.
    """
    if sys.platform == "win32" or logging.getLogger(__package__).isEnabledFor(logging.DEBUG):
        yield
        return
    module, log = bindings(), engine_log()
    # `abs` is a C function that takes what a log callback takes, looks at the level only and does nothing.
    nothing = module.llama_log_callback(ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value)
    with log.off():
        module.llama_log_set(nothing, ctypes.c_void_p(0))
        try:
            time.sleep(_LET_GO_S)
            yield
        finally:
            module.llama_log_set(log.callback(module.llama_log_callback), ctypes.c_void_p(0))


def _import_bindings() -> Any:
    """Import `llama_cpp.llama_cpp` without running `llama_cpp/__init__`.

    The package's `__init__` imports its high-level classes, and numpy, jinja2 and more with them (0.2 s that no answer
    needs). A stand-in parent package is there only while the submodule is imported, so that a later
    `import llama_cpp` by anybody still gets the real thing.
    """
    if "llama_cpp" in sys.modules or "llama_cpp.llama_cpp" in sys.modules:
        import llama_cpp.llama_cpp as module

        return module
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError("the package llama_cpp is not installed")
    parent = types.ModuleType("llama_cpp")
    parent.__path__ = list(spec.submodule_search_locations)
    parent.__spec__ = spec
    sys.modules["llama_cpp"] = parent
    try:
        return importlib.import_module("llama_cpp.llama_cpp")
    finally:
        del sys.modules["llama_cpp"]


def system_info() -> str:
    """llama.cpp's own line about the CPU features it was compiled with."""
    return bytes(bindings().llama_print_system_info()).decode("utf-8", "replace").strip()


def supports_gpu() -> bool:
    """Whether a GPU backend is compiled in and sees a device."""
    return bool(bindings().llama_supports_gpu_offload())
