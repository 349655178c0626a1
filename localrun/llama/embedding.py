"""One vector for a text, from a model that was made for it.

Knows llama.cpp's contexts for embeddings; knows no text. Invariants: a text is computed whole or refused, and it is the
model's own pooling, never one that was guessed.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from contextlib import ExitStack

from localrun.engine.ports import Span
from localrun.errors import ContextOverflowError, DoesNotFitError, EngineError
from localrun.llama.batch import Batch
from localrun.llama.library import bindings, engine_log, listen
from localrun.llama.model import LlamaModel
from localrun.llama.openmp import end_team


class EmbeddingContext:
    """A context that computes one text at a time. Close it before the model. Not thread-safe."""

    def __init__(self, model: LlamaModel, *, n_ctx: int, threads: int) -> None:
        """Raises `DoesNotFitError`, and `EngineError` for a model without pooling: it has no vector for a text."""
        self._lib = lib = bindings()
        self._model = model
        self.n_ctx = n_ctx
        self._stack = ExitStack()
        params = lib.llama_context_default_params()
        params.embeddings = True
        # An encoder sees all of a text at once, so a batch holds the longest text.
        params.n_ctx = params.n_batch = params.n_ubatch = n_ctx
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = threads
        params.no_perf = True
        listen()
        self._handle = lib.llama_init_from_model(model.handle, params)
        if not self._handle:
            lines = list(engine_log().errors)
            reason = lines[0] if lines else "the engine gave no reason"
            raise DoesNotFitError(f"a context of {n_ctx:,} tokens could not be made: {reason}")
        self._stack.callback(lib.llama_free, self._handle)
        self.n_dimensions = int(lib.llama_model_n_embd(model.handle))
        if lib.llama_pooling_type(self._handle) == lib.LLAMA_POOLING_TYPE_NONE:
            self._stack.close()
            raise EngineError(f"{model.path} has no embeddings: it names no way to make one vector of a text")
        self._batch = Batch(lib, n_ctx, 1)

    def tokens(self, text: str) -> list[int]:
        """Token ids of a text, with the special tokens that the model puts around it. Source: `llama_tokenize`."""
        data = text.encode()
        capacity = len(data) + 16
        ids = (ctypes.c_int32 * capacity)()
        vocabulary = self._model.vocabulary.handle
        count = self._lib.llama_tokenize(vocabulary, data, len(data), ids, capacity, True, False)
        if count < 0:
            raise EngineError(f"a text of {len(data):,} bytes has too many tokens for the engine")
        return ids[:count]

    def embed(self, tokens: Sequence[int]) -> list[float]:
        """The vector of a text, of length 1.  # (n_dimensions,)

        Raises `ContextOverflowError` with both numbers for a text that is too long.
        """
        if len(tokens) > self.n_ctx:
            raise ContextOverflowError(f"the text has {len(tokens):,} tokens, the context holds {self.n_ctx:,}")
        if not tokens:
            raise EngineError("the text has no tokens")
        lib = self._lib
        memory = lib.llama_get_memory(self._handle)
        if memory:
            lib.llama_memory_clear(memory, True)
        self._batch.fill([Span(0, 0, tokens, "all")])
        run = lib.llama_decode if lib.llama_model_has_decoder(self._model.handle) else lib.llama_encode
        code = run(self._handle, self._batch.struct)
        if code != 0:
            raise EngineError(f"the engine failed while it computed a text of {len(tokens):,} tokens (code {code})")
        pointer = lib.llama_get_embeddings_seq(self._handle, 0)
        if not pointer:
            raise EngineError("the engine gave no vector for a text")
        vector = [float(value) for value in pointer[: self.n_dimensions]]
        length = math.sqrt(math.fsum(value * value for value in vector))
        if not math.isfinite(length) or length == 0:
            raise EngineError("the model gave a vector that is not finite, or has no length")
        return [value / length for value in vector]

    def rest(self) -> None:
        """Give back what only a running computation of this thread needs."""
        end_team(self._lib._lib)

    def close(self) -> None:
        """Free the context. Idempotent."""
        self._stack.close()
