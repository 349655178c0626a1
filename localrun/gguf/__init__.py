"""Reads GGUF headers in pure Python, checks them, and identifies model files.

    header = read_header("model.gguf")      # raises ModelFileError
    header.architecture, header.n_ctx_train, header.n_layers, header.chat_template
    header.quantization, header.parameters, header.name, header.license
    header.metadata["tokenizer.ggml.tokens"]  # a lazy sequence
    header.tensors[0].name, .shape, .type.name, .offset, .n_bytes
    fingerprint("model.gguf")               # the identity of the content, in milliseconds
    sha256("model.gguf", on_progress=...)   # of every byte; remembered

Knows files and the format; knows neither the engine nor the catalogue.
"""

from localrun.gguf.header import GGUFHeader, check_runnable, read_header
from localrun.gguf.identity import fingerprint, known_sha256, sha256, vocabulary_fingerprint
from localrun.gguf.reader import TensorInfo
from localrun.gguf.types import TensorType
from localrun.gguf.values import GGUFArray

__all__ = [
    "GGUFArray",
    "GGUFHeader",
    "TensorInfo",
    "TensorType",
    "check_runnable",
    "fingerprint",
    "known_sha256",
    "read_header",
    "sha256",
    "vocabulary_fingerprint",
]
