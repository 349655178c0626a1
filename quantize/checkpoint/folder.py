"""A checkpoint folder: its configuration and the tensors of all its shards.

Knows file names and the shard index; not what the tensors mean. Invariant: an open checkpoint is complete: every file
that the index or the numbering calls for is there, whole, and holds exactly the tensors it should.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from quantize.checkpoint.config import Config, read_json
from quantize.checkpoint.safetensors import StoredTensor, read_safetensors
from quantize.errors import SourceError, UnsupportedError

INDEX = "model.safetensors.index.json"
_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<total>\d{5})\.safetensors")
_DOWNLOAD = "The checkpoint was not downloaded completely: download the missing files."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An open checkpoint. Its tensors are ordered by file, then by name, as llama.cpp's converter orders them."""

    folder: Path
    config: Config
    tensors: dict[str, StoredTensor]
    warnings: tuple[str, ...] = ()

    @property
    def n_bytes(self) -> int:
        return sum(t.n_bytes for t in self.tensors.values())


def open_checkpoint(folder: Path) -> Checkpoint:
    """Read the configuration and all headers.

    Raises SourceError when a file is missing, damaged, or contradicts another, with the names of all missing files;
    UnsupportedError when the weights are in another format.
    """
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise UnsupportedError(f"{folder} holds an adapter, not a model", hint="merge it into its base model first")
    config = Config.of(read_json(folder / "config.json"), folder / "config.json")
    names = sorted(p.name for p in folder.glob("*.safetensors") if p.is_file())
    if (folder / INDEX).is_file():
        expected = _read_index(folder)
        files = sorted(set(expected.values()))
        leftover = [n for n in names if n not in files and n.startswith("model")]
    else:
        expected, files, leftover = None, _files_without_index(folder, names), []
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise SourceError(f"{len(missing)} of {len(files)} files are missing: {', '.join(missing)}", hint=_DOWNLOAD)
    tensors = _read_files(folder, files)
    if expected is not None:
        _compare(expected, tensors)
    warnings = [f"{n} is not part of the checkpoint's index and was left out" for n in leftover]
    return Checkpoint(folder, config, tensors, tuple(warnings))


def _read_index(folder: Path) -> dict[str, str]:
    """Tensor name to file name. Raises SourceError for an index without one, or that points outside the folder."""
    weight_map = read_json(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise SourceError(f"{INDEX} has no weight_map", hint="download this file again")
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or Path(name).name != name:
            raise SourceError(f"{INDEX} puts tensor {tensor!r} into {name!r}, which is no file name")
    return weight_map


def _files_without_index(folder: Path, names: list[str]) -> list[str]:
    """The file or numbered set that makes up the model. Raises SourceError when two sets compete or none is there."""
    if "model.safetensors" in names and not any(n.startswith("model-") and _NUMBERED.fullmatch(n) for n in names):
        return ["model.safetensors"]
    sets: dict[tuple[str, int], None] = {}
    for name in names:
        if found := _NUMBERED.fullmatch(name):
            sets[found["stem"], int(found["total"])] = None
    if len(sets) == 1:
        ((stem, total),) = sets
        if stem == "model" and "model.safetensors" in names:
            raise SourceError(
                "the folder holds both model.safetensors and numbered shards, and no index says which is the model",
                hint="remove the set that is left over",
            )
        return [f"{stem}-{part:05d}-of-{total:05d}.safetensors" for part in range(1, total + 1)]
    if sets:
        listed = ", ".join(f"{stem}-*-of-{total:05d}" for stem, total in sets)
        raise SourceError(
            f"the folder holds several sets of shards ({listed}), and no index says which is the model",
            hint=f"remove the set that is left over, or download {INDEX}",
        )
    if len(names) == 1:
        return names
    if names:
        raise SourceError(f"several weight files and no {INDEX}: {', '.join(names)}", hint=_DOWNLOAD)
    other = sorted(p.name for pattern in ("*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack") for p in folder.glob(pattern))
    if other:
        raise UnsupportedError(
            f"no safetensors files in {folder}, only {', '.join(other[:3])}",
            hint="weights in pickle files are not read, because they can run code. Get the safetensors version",
        )
    raise SourceError(f"no weights in {folder}", hint=_DOWNLOAD)


def _read_files(folder: Path, files: list[str]) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    for name in files:
        for tensor in read_safetensors(folder / name):
            if tensor.name in tensors:
                first = tensors[tensor.name].file.path.name
                raise SourceError(f"tensor {tensor.name!r} is stored twice: in {first} and in {name}")
            tensors[tensor.name] = tensor
    return tensors


def _compare(expected: dict[str, str], tensors: dict[str, StoredTensor]) -> None:
    """The index and the files must name the same tensors in the same places."""
    wrong = [name for name, file in expected.items() if name not in tensors or tensors[name].file.path.name != file]
    if wrong:
        files = sorted({expected[name] for name in wrong})
        raise SourceError(
            f"{len(wrong)} tensors of the index are not in their files ({', '.join(files)}), e.g. {wrong[0]!r}",
            hint="files of different versions were mixed: download the checkpoint again",
        )
    extra = [name for name in tensors if name not in expected]
    if extra:
        file = tensors[extra[0]].file.path.name
        raise SourceError(
            f"{len(extra)} tensors are in the files but not in {INDEX}, e.g. {extra[0]!r} in {file}",
            hint="files of different versions were mixed: download the checkpoint again",
        )
