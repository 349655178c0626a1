"""The output, decided to the last byte before a weight is read: files, headers, and each tensor's type, place and size.

Knows recipes and the format; reads and writes nothing. Invariant: the sum of the parts is the size of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gguf.constants import GGML_QUANT_VERSION, GGUFValueType

from quantize import ggml
from quantize.errors import RecipeError
from quantize.model import MetadataValue, Model
from quantize.recipe import Choice, Recipe, Substitutions, assign, check_matrix, substitutions
from quantize.split import shard_metadata, shard_path, split_by_size
from quantize.types import FLOAT_TYPES
from quantize.writer import DEFAULT_ALIGNMENT, TensorInfo, align, encode_header

RECIPE_KEY = "localrun.quantize.recipe"
"""In the metadata of every model that is written here."""


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    choice: Choice
    offset: int
    """From the start of its file."""
    row_bytes: int

    @property
    def n_bytes(self) -> int:
        return self.row_bytes * self.choice.tensor.n_rows


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One output file; a split output has several."""

    path: Path
    header: bytes
    tensors: tuple[PlannedTensor, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be written."""

    recipe: str
    architecture: str
    files: tuple[PlannedFile, ...]
    substitutions: Substitutions | None
    source_bytes: int
    warnings: tuple[str, ...]

    @property
    def tensors(self) -> list[PlannedTensor]:
        return [tensor for file in self.files for tensor in file.tensors]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def n_parameters(self) -> int:
        return sum(tensor.choice.tensor.n_values for tensor in self.tensors)

    @property
    def bits_per_weight(self) -> float:
        return sum(tensor.n_bytes for tensor in self.tensors) * 8 / max(self.n_parameters, 1)

    def as_json(self) -> dict[str, object]:
        """The plan as plain values, for `--dry-run --json`."""
        changed = self.substitutions
        return {
            "recipe": self.recipe,
            "architecture": self.architecture,
            "parameters": self.n_parameters,
            "bytes": self.size,
            "bits_per_weight": round(self.bits_per_weight, 4),
            "source_bytes": self.source_bytes,
            "files": [{"path": str(file.path), "bytes": file.size} for file in self.files],
            "substitutions": None
            if changed is None
            else {
                "count": changed.count,
                "share": round(changed.share, 6),
                "bits_wanted": round(changed.bits_wanted, 4),
                "bits": round(changed.bits, 4),
                "kinds": [{"wanted": a, "written": b, "count": n} for a, b, n in changed.kinds],
            },
            "tensors": [
                {
                    "name": planned.choice.tensor.name,
                    "shape": list(planned.choice.tensor.shape),
                    "source_type": planned.choice.tensor.source_type.name.lower(),
                    "type": planned.choice.type.name.lower(),
                    "wanted": planned.choice.wanted.name.lower(),
                    "reason": planned.choice.reason,
                    "bytes": planned.n_bytes,
                }
                for planned in self.tensors
            ],
            "warnings": list(self.warnings),
        }


def make_plan(
    model: Model,
    recipe: Recipe,
    output: Path,
    *,
    matrix_names: frozenset[str] | None,
    matrix_pending: bool = False,
    extra_metadata: Mapping[str, MetadataValue] | None = None,
    split_bytes: int | None = None,
) -> Plan:
    """Decide everything about the output.

    Args:
        matrix_names: tensors that the importance matrix has data for; None without a matrix.
        matrix_pending: a matrix will be collected later, so its names cannot be checked yet.
        extra_metadata: keys that describe how the file was made.
        split_bytes: the largest size of one file, None for a single file.

    Raises:
        RecipeError: the recipe makes no sense for the model (see `recipe.assign`).
    """
    if not model.tensors:
        raise RecipeError(
            f"the {model.architecture} model has no tensors", hint="a vocabulary alone cannot be quantized"
        )
    choices = assign(model, recipe, has_matrix=matrix_pending or matrix_names is not None)
    if not matrix_pending:
        check_matrix(choices, recipe, matrix_names)
    metadata = _final_metadata(model, recipe, choices, extra_metadata or {})
    alignment = _alignment(model)
    changed = substitutions(choices)
    warnings = [*model.warnings, *_requantizing(choices)]
    if changed is not None:
        warnings.append(str(changed))
    files = _lay_out(choices, metadata, output, alignment, split_bytes)
    warnings += _growing(choices, sum(file.size for file in files), model.source_bytes)
    return Plan(
        recipe=recipe.name,
        architecture=model.architecture,
        files=files,
        substitutions=changed,
        source_bytes=model.source_bytes,
        warnings=tuple(warnings),
    )


def _lay_out(
    choices: Sequence[Choice],
    metadata: dict[str, MetadataValue],
    output: Path,
    alignment: int,
    split_bytes: int | None,
) -> tuple[PlannedFile, ...]:
    if split_bytes is None:
        return (_file(output, choices, metadata, alignment),)
    sizes = [_row_bytes(choice) * choice.tensor.n_rows for choice in choices]
    groups = split_by_size(sizes, split_bytes)
    files = []
    for number, (start, stop) in enumerate(groups):
        split = shard_metadata(number, len(groups), len(choices))
        keys = {**metadata, **split} if number == 0 else split
        files.append(_file(shard_path(output, number, len(groups)), choices[start:stop], keys, alignment))
    return tuple(files)


def _file(path: Path, choices: Sequence[Choice], metadata: dict[str, MetadataValue], alignment: int) -> PlannedFile:
    infos: list[TensorInfo] = []
    position = 0
    for choice in choices:
        tensor = choice.tensor
        infos.append(TensorInfo(tensor.name, tensor.shape, choice.type, position))
        position = align(position + _row_bytes(choice) * tensor.n_rows, alignment)
    header = encode_header(metadata, infos, alignment)
    tensors = tuple(
        PlannedTensor(choice, len(header) + info.offset, _row_bytes(choice))
        for choice, info in zip(choices, infos, strict=True)
    )
    return PlannedFile(path, header, tensors, len(header) + position)


def _row_bytes(choice: Choice) -> int:
    return ggml.row_bytes(choice.type, choice.tensor.n_cols)


def _alignment(model: Model) -> int:
    entry = model.metadata.get("general.alignment")
    return int(entry.value) if entry is not None else DEFAULT_ALIGNMENT  # type: ignore[call-overload]


def _final_metadata(
    model: Model, recipe: Recipe, choices: Sequence[Choice], extra: Mapping[str, MetadataValue]
) -> dict[str, MetadataValue]:

    metadata = {key: value for key, value in model.metadata.items() if not key.startswith("split.")}
    if recipe.mix is not None:
        metadata["general.file_type"] = MetadataValue(int(recipe.mix.file_type), GGUFValueType.UINT32)
    metadata["general.quantization_version"] = MetadataValue(GGML_QUANT_VERSION, GGUFValueType.UINT32)
    metadata[RECIPE_KEY] = MetadataValue(recipe.name, GGUFValueType.STRING)
    metadata.update(extra)
    return metadata


def _growing(choices: Sequence[Choice], size: int, source_bytes: int) -> list[str]:
    """What was lost by quantizing does not come back: a larger file of it is no better."""
    if size <= source_bytes or all(choice.tensor.source_type in FLOAT_TYPES for choice in choices):
        return []
    grown = f"{size / 1e6:,.1f} MB instead of {source_bytes / 1e6:,.1f} MB"
    return [f"the result will be larger than the quantized source, and no better: {grown}"]


def _requantizing(choices: Sequence[Choice]) -> list[str]:

    again = [c for c in choices if c.tensor.source_type not in FLOAT_TYPES and c.type != c.tensor.source_type]
    if not again:
        return []
    kinds = sorted({choice.tensor.source_type.name.lower() for choice in again})
    return [f"{len(again)} tensors are already quantized ({', '.join(kinds)}): quantizing them again loses twice"]
