"""The way in: a checkpoint folder or a GGUF file becomes a `Model`.

Invariant: when `open_source` returns, everything that can be wrong with the source is known not to be, except the
values of the weights; none has been read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from quantize.architectures import architecture_of
from quantize.checkpoint import open_checkpoint
from quantize.checkpoint.quantized import plain_weights
from quantize.errors import SourceError
from quantize.general import general_metadata
from quantize.gguf_source import is_gguf, open_gguf
from quantize.metadata import string
from quantize.model import Model
from quantize.vocabulary import read_vocabulary


def open_source(path: Path | str, *, pre_tokenizer: str | None = None, name: str | None = None) -> Model:
    """Open a Hugging Face checkpoint folder, or a GGUF file (one of a split set stands for all).

    `pre_tokenizer` is llama.cpp's name of the pre-tokenizer, for tokenizers it cannot be derived from; `name` becomes
    `general.name`. Raises SourceError when something is missing, damaged or contradicts itself, UnsupportedError for an
    architecture, tokenizer, dtype or quantization method that is not known.
    """
    path = Path(path)
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    if path.is_dir():
        return _open_folder(path, pre_tokenizer, name)
    if not is_gguf(path):
        raise SourceError(
            f"{path} is neither a checkpoint folder nor a GGUF file",
            hint="name the folder that holds config.json" if path.suffix in (".safetensors", ".json") else None,
        )
    return _renamed(open_gguf(path), name)


def _renamed(model: Model, name: str | None) -> Model:
    if name is None:
        return model
    return replace(model, metadata={**model.metadata, "general.name": string(name)})


def _open_folder(folder: Path, pre_tokenizer: str | None, name: str | None) -> Model:
    checkpoint = open_checkpoint(folder)
    architecture = architecture_of(checkpoint.config)
    weights = plain_weights(checkpoint)
    tensors = tuple(architecture.tensors(weights.by_name, checkpoint, weights.scales))
    vocabulary = read_vocabulary(folder, architecture.config, architecture.sizes()["vocab"], pre=pre_tokenizer)
    parameters = architecture.parameters()
    warnings: list[str] = []
    general = general_metadata(architecture.name, folder.resolve(), tensors, name, warnings)
    return Model(
        architecture=architecture.name,
        metadata={
            **general,
            **parameters,
            **vocabulary.metadata,
        },
        tensors=tensors,
        source_bytes=checkpoint.n_bytes,
        warnings=(*checkpoint.warnings, *architecture.warnings, *vocabulary.warnings, *warnings),
        tied_output=all(t.name != "output.weight" for t in tensors),
    )
