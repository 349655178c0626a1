"""Running a GGUF model: load, tokenize, decode, look at logits.

The one module here that imports llama-cpp-python, for the importance matrix and the quality report. Knows handles and
return codes; no statistics. Invariant: handles are freed in the order context, model; the library's log goes to
`logging`, never to stderr; every failed call is an exception with the library's own last words.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import logging
import os
import sys
import types
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from quantize.errors import MemoryLimitError, QuantizeError
from quantize.ggml import library_folder

logger = logging.getLogger(__name__)

Tokens = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]

EvalCallback = Callable[[int, bool], bool]
"""`callback(address of the ggml_tensor, ask)`: with `ask`, whether its data is wanted; without, whether to go on."""

_SPIN_COUNT = "10000"
"""Turns that OpenMP's threads spin at a barrier before they sleep: endless spinning stalls a busy machine."""


class Library:
    """The C API with its log taken over."""

    def __init__(self) -> None:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)
        try:
            api = _import_binding()
        except (ImportError, OSError, RuntimeError) as error:
            raise QuantizeError(f"cannot load the engine: {error}", hint="reinstall llama-cpp-python") from error
        self.api: Any = api
        self.last_words: deque[str] = deque(maxlen=8)
        self._log = api.llama_log_callback(self._on_log)
        self.listen()
        api.llama_backend_init()

    def listen(self) -> None:
        """Hear the engine from now on, whoever heard it before; what it said until now is forgotten."""
        self.last_words.clear()
        self.api.llama_log_set(self._log, None)

    def _on_log(self, level: int, text: bytes, _user_data: object) -> None:
        line = text.decode("utf-8", "replace").strip()
        if line:
            logger.debug("%s", line)
        if level == 4 and line:  # GGML_LOG_LEVEL_ERROR
            self.last_words.append(line)

    def failure(self, what: str) -> QuantizeError:
        """An exception that tells what the library logged last."""
        said = self.last_words[0] if self.last_words else "the engine gave no reason"
        kind = MemoryLimitError if "alloc" in said or "memory" in said else QuantizeError
        return kind(f"{what}: {said}", hint="use a smaller base, or --imatrix off --no-report")


def _import_binding() -> Any:
    """`llama_cpp.llama_cpp` alone: the package around it imports high-level classes that nothing here needs.

    An empty package stands in while the module is imported, and is gone afterwards.
    """
    if "llama_cpp" in sys.modules:
        return importlib.import_module("llama_cpp.llama_cpp")
    if "llama_cpp.llama_cpp" in sys.modules:
        return sys.modules["llama_cpp.llama_cpp"]
    package = types.ModuleType("llama_cpp")
    package.__path__ = [str(library_folder().parent)]
    sys.modules["llama_cpp"] = package
    try:
        return importlib.import_module("llama_cpp.llama_cpp")
    finally:
        del sys.modules["llama_cpp"]


def fits_in_memory(path: Path) -> bool:
    """Whether a model's weights stay in memory between two decodes. Where nobody tells, they are taken to."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            available = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return True
    return path.stat().st_size < 0.9 * available


@functools.cache
def library() -> Library:
    """The engine, loaded once for the process."""
    return Library()


class LoadedModel:
    """A model in memory. Close it, or use it as a context manager."""

    def __init__(self, path: Path, *, gpu_layers: int = 0) -> None:
        """Load a GGUF file; its weights are mapped, so the system may drop and fetch them again.

        Raises:
            QuantizeError: the engine cannot load it.
            MemoryLimitError: there is not enough memory.
        """
        self.path = path
        self._lib = library()
        api = self._lib.api
        params = api.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        params.load_mode = api.LLAMA_LOAD_MODE_MMAP
        self._lib.listen()
        self._handle = api.llama_model_load_from_file(os.fsencode(path), params)
        if not self._handle:
            raise self._lib.failure(f"the engine cannot load {path}")
        self._vocab = api.llama_model_get_vocab(self._handle)
        self.n_vocab: int = api.llama_vocab_n_tokens(self._vocab)
        self.can_generate = not api.llama_model_has_encoder(self._handle) and self._is_causal()
        """Whether it predicts tokens; encoders (embedding models) do not."""
        bos = api.llama_vocab_bos(self._vocab)
        self.bos: int | None = bos if bos >= 0 and api.llama_vocab_get_add_bos(self._vocab) else None
        """The token that every text starts with, where the model wants one."""

    def __enter__(self) -> LoadedModel:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._handle:
            self._lib.api.llama_model_free(self._handle)
            self._handle = None

    @property
    def size(self) -> int:
        return int(self._lib.api.llama_model_size(self._handle))

    @property
    def n_ctx_train(self) -> int:
        return int(self._lib.api.llama_model_n_ctx_train(self._handle))

    @property
    def chat_template(self) -> bytes | None:
        found: bytes | None = self._lib.api.llama_model_chat_template(self._handle, None)
        return found

    def _is_causal(self) -> bool:
        architecture = self._metadata("general.architecture")
        return self._metadata(f"{architecture}.attention.causal") != "false"

    def _metadata(self, key: str) -> str:
        """A value as text; empty where there is none."""
        buffer = ctypes.create_string_buffer(256)
        n = self._lib.api.llama_model_meta_val_str(self._handle, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if n >= 0 else ""

    def tokenize(self, text: str, *, add_bos: bool = False, special: bool = False) -> Tokens:
        """Token ids of a text; `special` also recognizes the names of control tokens."""
        raw = text.encode("utf-8", "replace")
        size = len(raw) + 16
        buffer = np.empty(size, np.int32)
        pointer = buffer.ctypes.data_as(self._lib.api.llama_token_p)
        n = self._lib.api.llama_tokenize(self._vocab, raw, len(raw), pointer, size, add_bos, special)
        if n < 0:
            raise self._lib.failure(f"the tokenizer refused {len(raw)} bytes")
        return buffer[:n].copy()

    def is_end(self, token: int) -> bool:
        return bool(self._lib.api.llama_vocab_is_eog(self._vocab, token))

    def open(
        self,
        *,
        n_ctx: int,
        n_seq: int = 1,
        threads: int,
        on_eval: EvalCallback | None = None,
        kv_type: GGMLQuantizationType = GGMLQuantizationType.F16,
    ) -> Session:
        """A context for `n_seq` sequences of `n_ctx` tokens each. Close it before the model."""
        return Session(self._handle, self, n_ctx, n_seq, threads, on_eval, kv_type)


class Session:
    """A context: decodes batches and hands out logits. Close it, or use it as a context manager."""

    def __init__(
        self,
        handle: Any,
        model: LoadedModel,
        n_ctx: int,
        n_seq: int,
        threads: int,
        on_eval: EvalCallback | None,
        kv_type: GGMLQuantizationType,
    ) -> None:
        self._lib = library()
        self.model = model
        api = self._lib.api
        self.n_batch = max(n_ctx, n_seq)
        params = api.llama_context_default_params()
        params.n_ctx = n_ctx * n_seq
        params.n_batch = params.n_ubatch = self.n_batch
        params.n_seq_max = n_seq
        params.n_threads = params.n_threads_batch = threads
        params.no_perf = True
        params.kv_unified = n_seq > 1
        params.type_k = params.type_v = int(kv_type)
        if kv_type != GGMLQuantizationType.F16:
            params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_ENABLED  # a quantized V cache needs it
        self._callback = None
        if on_eval is not None:
            ask = on_eval
            self._callback = api.ggml_backend_sched_eval_callback(lambda tensor, asking, _user: ask(tensor, asking))
            params.cb_eval = self._callback
        self._stack = ExitStack()
        self._lib.listen()
        self._context = api.llama_init_from_model(handle, params)
        if not self._context:
            raise self._lib.failure(f"the engine cannot make a context for {model.path}")
        self._stack.callback(api.llama_free, self._context)
        self._batch = api.llama_batch_init(self.n_batch, 0, 1)
        self._stack.callback(api.llama_batch_free, self._batch)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    def clear(self) -> None:
        """Forget all sequences."""
        self._lib.api.llama_memory_clear(self._lib.api.llama_get_memory(self._context), True)

    def forget(self, sequence: int) -> None:
        """Forget one sequence."""
        self._lib.api.llama_memory_seq_rm(self._lib.api.llama_get_memory(self._context), sequence, -1, -1)

    def decode(self, tokens: Tokens | Sequence[int], *, position: int, sequence: int = 0, logits_from: int) -> Logits:
        """Decode tokens of one sequence; logits of those from index `logits_from` on.

        Returns: a view that the next decode overwrites.  # (n, n_vocab)
        """
        n = len(tokens)
        flags = np.arange(n) >= logits_from
        self._fill(np.asarray(tokens, np.int32), position + np.arange(n), np.full(n, sequence), flags)
        return self._run(int(flags.sum()))

    def decode_step(self, tokens: Tokens, positions: Sequence[int], sequences: Sequence[int]) -> Logits:
        """Decode one token of each sequence; logits of all.  # (n_sequences, n_vocab), a view as above"""
        n = len(tokens)
        self._fill(tokens, np.asarray(positions), np.asarray(sequences), np.ones(n, dtype=bool))
        return self._run(n)

    def _fill(
        self, tokens: Tokens, positions: npt.NDArray[Any], sequences: npt.NDArray[Any], flags: npt.NDArray[np.bool_]
    ) -> None:
        n = len(tokens)
        if n > self.n_batch:
            raise QuantizeError(f"a batch of {n} tokens is longer than {self.n_batch}")
        if n and (tokens.min() < 0 or tokens.max() >= self.model.n_vocab):
            raise QuantizeError(f"token ids go from {tokens.min()} to {tokens.max()} in {self.model.n_vocab} tokens")
        batch = self._batch
        batch.n_tokens = n
        for i in range(n):
            batch.token[i] = int(tokens[i])
            batch.pos[i] = int(positions[i])
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = int(sequences[i])
            batch.logits[i] = bool(flags[i])

    def _run(self, n_outputs: int) -> Logits:
        api = self._lib.api
        self._lib.listen()
        code = api.llama_decode(self._context, self._batch)
        if code != 0:
            raise self._lib.failure(f"decoding failed with code {code}")
        if n_outputs == 0:
            return np.empty((0, self.model.n_vocab), np.float32)
        pointer = api.llama_get_logits(self._context)
        address = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(address, shape=(n_outputs, self.model.n_vocab))
