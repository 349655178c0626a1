"""A model file in memory.

Knows llama.cpp's model handle and facts about the model; knows no context and no sequence. The file has been checked
in Python before (`localrun.gguf`). Invariant: the handle is freed exactly once, after everything made from it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from localrun.errors import DoesNotFitError, InterruptedByUserError, ModelLoadError
from localrun.llama.library import bindings, engine_log, listen
from localrun.llama.overrides import ExpertsInRam
from localrun.llama.vocabulary import Vocabulary
from localrun.spread import Spread

Progress = Callable[[float], bool]
"""Called with a fraction (0 to 1) while weights are read; returning False stops the load."""

ALL_LAYERS = 10_000


class LlamaModel:
    """A loaded model. Close it after every context made from it."""

    def __init__(self, path: Path, handle: Any, lib: Any) -> None:
        self.path = path
        self.handle = handle
        self._lib = lib
        self._stack = ExitStack()
        self._stack.callback(lib.llama_model_free, handle)
        self.vocabulary = Vocabulary(lib, lib.llama_model_get_vocab(handle))

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        gpu_layers: int = 0,
        use_mmap: bool = True,
        vocab_only: bool = False,
        spread: Spread | None = None,
        experts_in_ram: int = 0,
        progress: Progress | None = None,
    ) -> LlamaModel:
        """Read the model at `path`; `gpu_layers` layers go to the GPU (`ALL_LAYERS` for all).

        Several GPUs share them as `spread` says (by free memory without it). The experts of the first `experts_in_ram`
        layers stay in RAM, whatever `spread` says of experts: the planner has read it.

        Raises `ModelLoadError` with the library's reason, `DoesNotFitError` when memory ran out, and
        `InterruptedByUserError` when `progress` returned False.
        """
        lib = bindings()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        params.load_mode = lib.LLAMA_LOAD_MODE_MMAP if use_mmap else lib.LLAMA_LOAD_MODE_NONE
        params.vocab_only = vocab_only
        if spread is not None and gpu_layers:
            _apply(spread, params, lib)
        overrides = ExpertsInRam(lib, experts_in_ram) if experts_in_ram else None
        if overrides is not None:
            params.tensor_buft_overrides = overrides.pointer
        stopped = False

        def on_progress(fraction: float, _user: ctypes.c_void_p) -> bool:
            nonlocal stopped
            stopped = progress is not None and not progress(fraction)
            return not stopped

        callback = lib.llama_progress_callback(on_progress)
        params.progress_callback = callback
        log, name = listen(), str(path).encode("utf-8", "surrogateescape")
        mark = log.mark()
        handle = lib.llama_model_load_from_file(name, params)
        if not handle and not stopped and log.missed_since(mark):
            with log.kept_on():  # once more, to hear why
                handle = lib.llama_model_load_from_file(name, params)
        if not handle:
            if stopped:
                raise InterruptedByUserError("loading was interrupted")
            raise _load_error(path)
        return cls(path, handle, lib)

    def close(self) -> None:
        """Free the model. May be called again."""
        self._stack.close()

    @property
    def description(self) -> str:
        buffer = ctypes.create_string_buffer(256)
        self._lib.llama_model_desc(self.handle, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    @property
    def n_ctx_train(self) -> int:
        return int(self._lib.llama_model_n_ctx_train(self.handle))

    @property
    def n_layer(self) -> int:
        return int(self._lib.llama_model_n_layer(self.handle))

    @property
    def n_swa(self) -> int:
        """Sliding window in tokens; 0 where every layer sees everything."""
        return int(self._lib.llama_model_n_swa(self.handle))

    @property
    def n_params(self) -> int:
        return int(self._lib.llama_model_n_params(self.handle))

    @property
    def size_bytes(self) -> int:
        return int(self._lib.llama_model_size(self.handle))

    @property
    def keeps_state(self) -> bool:
        """Whether part of the memory is a running state that cannot be cut (recurrent and hybrid models)."""
        return bool(self._lib.llama_model_is_recurrent(self.handle) or self._lib.llama_model_is_hybrid(self.handle))

    @property
    def can_generate(self) -> bool:
        """False for encoders (embedding models)."""
        return bool(self._lib.llama_model_has_decoder(self.handle))


def _apply(spread: Spread, params: Any, lib: Any) -> None:
    """Write the way to share a model among GPUs into the loader's parameters."""
    if spread.split_mode is not None:
        params.split_mode = getattr(lib, f"LLAMA_SPLIT_MODE_{spread.split_mode.upper()}")
    if spread.main_gpu is not None:
        params.main_gpu = spread.main_gpu
    if spread.tensor_split:
        # The library copies as many numbers as it could have devices; those beyond the ones given stay 0.
        shares = (ctypes.c_float * lib.llama_max_devices())(*spread.tensor_split)
        params.tensor_split = ctypes.cast(shares, ctypes.POINTER(ctypes.c_float))


def _load_error(path: Path) -> ModelLoadError | DoesNotFitError:
    lines = list(engine_log().errors)
    reason = lines[0] if lines else "the engine gave no reason"
    memory_words = ("unable to allocate", "failed to allocate", "out of memory", "cannot allocate", "mmap failed")
    if any(word in line.lower() for line in lines for word in memory_words):
        return DoesNotFitError(
            f"{path} does not fit in memory: {reason}",
            hint="take a smaller quantization, or fewer --gpu-layers",
        )
    return ModelLoadError(
        f"the engine could not load {path}: {reason}",
        hint="--debug shows the engine's whole log; the file may be made for a newer engine",
    )
