"""What a model file says about itself.

Knows the standard keys of the metadata; knows neither the engine nor the catalogue. `read_header` is the entry point.
Invariant: a `GGUFHeader` that exists belongs to a complete model, all of whose tensors lie inside its files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localrun.errors import ModelFileError
from localrun.gguf.architectures import ARCHITECTURES
from localrun.gguf.foreign import shown
from localrun.gguf.reader import TensorInfo
from localrun.gguf.shards import parse_set
from localrun.gguf.soundness import check_values, check_vocabulary
from localrun.gguf.types import FILE_TYPES
from localrun.gguf.values import GGUFArray, Value

_FILE_TYPE_GUESSED = 1024
"""A flag in `general.file_type` (`LLAMA_FTYPE_GUESSED`)."""


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """The header of a model: of one file, or of a split set (then `path` is its first file)."""

    path: Path
    version: int
    metadata: Mapping[str, Value]
    """The keys of the first file. Arrays are `GGUFArray`s, read on demand."""
    tensors: tuple[TensorInfo, ...]
    """All tensors, of all files."""
    alignment: int
    data_offset: int
    """Where tensor data begins in the first file."""
    file_size: int
    """Bytes of all files together."""
    shards: tuple[Path, ...]
    """All files, the first one first."""

    @property
    def architecture(self) -> str:
        return self.text("general.architecture") or ""

    @property
    def name(self) -> str | None:
        return self.text("general.name")

    @property
    def license(self) -> str | None:
        return self.text("general.license")

    @property
    def chat_template(self) -> str | None:
        return self.text("tokenizer.chat_template")

    @property
    def n_ctx_train(self) -> int | None:
        return self.of_architecture("context_length")

    @property
    def n_layers(self) -> int | None:
        return self.of_architecture("block_count")

    @property
    def n_embd(self) -> int | None:
        return self.of_architecture("embedding_length")

    @property
    def n_vocab(self) -> int | None:
        """The number of tokens, from the token list or, without one, from the architecture's own key."""
        tokens = self.array("tokenizer.ggml.tokens")
        return self.of_architecture("vocab_size") if tokens is None else len(tokens)

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(tensor.n_elements for tensor in self.tensors)

    @property
    def quantization(self) -> str:
        """The file type's name (`Q4_K_M`), or the type that most bytes have, where the file does not tell."""
        file_type = self.integer("general.file_type")
        if file_type is not None and (file_type & ~_FILE_TYPE_GUESSED) in FILE_TYPES:
            return FILE_TYPES[file_type & ~_FILE_TYPE_GUESSED]
        return next(iter(self.bytes_by_type), "unknown")

    @property
    def bits_per_weight(self) -> float:
        """Bits of tensor data a weight takes on average."""
        return 8 * sum(tensor.n_bytes for tensor in self.tensors) / max(self.parameters, 1)

    @property
    def bytes_by_type(self) -> dict[str, int]:
        """Bytes of tensor data by type name, the largest first."""
        totals: Counter[str] = Counter()
        for tensor in self.tensors:
            totals[tensor.type.name] += tensor.n_bytes
        return dict(totals.most_common())

    @property
    def tensors_by_type(self) -> dict[str, int]:
        """Number of tensors by type name, the most frequent first."""
        return dict(Counter(tensor.type.name for tensor in self.tensors).most_common())

    def text(self, key: str) -> str | None:
        """The string value of `key`; None if it is missing or no string."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        """The integer value of `key`; None if it is missing or no integer."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def array(self, key: str) -> GGUFArray | None:
        """The array of `key`; None if it is missing or no array."""
        value = self.metadata.get(key)
        return value if isinstance(value, GGUFArray) else None

    def of_architecture(self, key: str) -> int | None:
        """The integer value of `ARCHITECTURE.key`, e.g. `llama.block_count`. The largest, if there is one a layer."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, GGUFArray):
            numbers = [number for number in value if isinstance(number, int)]
            return max(numbers, default=None)
        return self.integer(f"{self.architecture}.{key}")


def read_header(path: Path | str, *, runnable: bool = True, vocabulary: bool = True) -> GGUFHeader:
    """Read the header of the model that the file `path` belongs to, without touching tensor data.

    Any file of a split set stands for the set. With `runnable`, what the engine cannot run as a model is refused too:
    an unknown architecture, an adapter, a vision projector, values that would end the process inside the engine.
    Without `vocabulary` the file need not have one: what plans a model's memory asks for no text.
    Takes about 0.2 s for a vocabulary of 262k tokens.

    Raises `ModelFileError`, whose message names the file and what is wrong with it.
    """
    files = parse_set(Path(path))
    first = files[0]
    tensors = first.tensors
    if len(files) > 1:
        tensors = tuple(t._replace(shard=number) for number, file in enumerate(files) for t in file.tensors)
    header = GGUFHeader(
        path=first.path,
        version=first.version,
        metadata=first.metadata,
        tensors=tensors,
        alignment=first.alignment,
        data_offset=first.data_offset,
        file_size=sum(file.file_size for file in files),
        shards=tuple(file.path for file in files),
    )
    if runnable:
        check_runnable(header, vocabulary=vocabulary)
    return header


def check_runnable(header: GGUFHeader, *, vocabulary: bool = True) -> None:
    """Raise `ModelFileError` if the engine knows no way to run this file as a language model."""
    kind = header.text("general.type")
    if kind == "adapter":
        raise ModelFileError(f"{shown(header.path)} is a LoRA adapter, not a model", hint="name the base model")
    if kind == "imatrix":
        raise ModelFileError(
            f"{shown(header.path)} is an importance matrix, not a model",
            hint="use it with `quantize --imatrix`",
        )
    if kind == "mmproj" or header.architecture == "clip":
        raise ModelFileError(
            f"{shown(header.path)} is the vision or audio part of a model", hint="name the language model beside it"
        )
    if not header.architecture:
        raise ModelFileError(
            f"{shown(header.path)} does not say which architecture it has (general.architecture is missing)",
            hint="it was not made by a converter of language models",
        )
    if header.architecture not in ARCHITECTURES:
        raise ModelFileError(
            f"{shown(header.path)} has the architecture {header.architecture!r}, which the engine does not know",
            hint="the file was made by a newer or another tool: update localrun, or use another model",
        )
    check_values(header)
    if vocabulary:
        check_vocabulary(header)
