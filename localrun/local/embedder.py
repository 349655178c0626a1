"""An embedding model on this machine.

Knows files and the engine's embedding context; knows no command. Invariant: one text is computed at a time.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from localrun.catalog import ModelFile
from localrun.errors import EngineError, LocalrunError
from localrun.gguf import GGUFHeader
from localrun.hardware.cpu import physical_cores
from localrun.llama.embedding import EmbeddingContext
from localrun.llama.model import LlamaModel
from localrun.params import EngineParams

_LONGEST = 8192
"""Tokens of a text. The whole text is one batch, whose buffers grow with it."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """A vector of length 1, and how many tokens its text had."""

    vector: list[float]
    n_tokens: int


def is_embedding_model(header: GGUFHeader) -> bool:
    """Whether a file was made to give vectors: it names a way of pooling."""
    return bool(header.integer(f"{header.architecture}.pooling_type"))


def longest_text(header: GGUFHeader, params: EngineParams) -> int:
    """Tokens of the longest text that a model takes."""
    return min(params.n_ctx or _LONGEST, header.n_ctx_train or _LONGEST)


class LocalEmbedder:
    """One embedding model, loaded. Thread-safe."""

    def __init__(self, file: ModelFile, header: GGUFHeader, params: EngineParams) -> None:
        """Raises `ModelLoadError`, `DoesNotFitError`, `EngineError`."""
        self._lock = threading.Lock()
        self._closed = False
        self.failed = False
        """The engine met a bug: whether it computes what it should is not known any more."""
        layers = params.gpu_layers or 0
        self._model = LlamaModel.load(file.path, gpu_layers=layers, use_mmap=params.use_mmap, spread=params.spread)
        threads = params.threads or physical_cores()
        try:
            self._context = EmbeddingContext(self._model, n_ctx=longest_text(header, params), threads=threads)
        except BaseException:
            self._model.close()
            raise

    @property
    def n_dimensions(self) -> int:
        return self._context.n_dimensions

    @property
    def context_limit(self) -> int:
        return self._context.n_ctx

    def embed(self, text: str) -> Embedding:
        """The vector of a text. Raises `ContextOverflowError`, `EngineError`."""
        with self._lock:
            if self._closed:
                raise EngineError("the model is closed", hint="load it again")
            try:
                tokens = self._context.tokens(text)
                return Embedding(self._context.embed(tokens), len(tokens))
            except LocalrunError:
                raise
            except Exception as error:
                self.failed = True
                raise EngineError(f"the engine stopped because of a bug: {type(error).__name__}: {error}") from error
            finally:
                self._context.rest()  # any thread may call, and each would keep helpers of its own

    def close(self) -> None:
        """Free the model. Idempotent."""
        with self._lock:
            self._closed = True
            self._context.close()
            self._model.close()
