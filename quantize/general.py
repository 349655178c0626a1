"""The `general.*` keys: what the model is called, how large it is, its license, and the sampler settings it recommends.

The names are taken apart by gguf-py (the README's front matter, the folder's name), so that files from here and from
llama.cpp's converter are labelled alike. Invariant: nothing here can stop a conversion; a README that cannot be read is
left out with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
from gguf.constants import GGUFValueType

from quantize.checkpoint.config import read_json_if_there
from quantize.metadata import Metadata, f32, string
from quantize.model import MetadataValue, Tensor


def general_metadata(
    architecture: str, folder: Path, tensors: Sequence[Tensor], name: str | None, warnings: list[str]
) -> Metadata:
    """All `general.*` keys but those that depend on the types written (`file_type`, `quantization_version`).

    What had to be left out is added to `warnings`.
    """
    total, shared, expert, n_experts = _parameters(tensors)
    values = _described(folder, name, total, warnings)
    if values.size_label is None and total:
        values.size_label = gguf.size_label(total, shared, expert, n_experts)
    values.name = values.name or folder.name or architecture
    if name is None and (hub := _hub_id(folder)) is not None:
        _describe_by_id(values, hub, folder.name, total)
    writer = gguf.GGUFWriter(None, architecture)
    values.set_gguf_meta_model(writer)
    keys = {key: _typed(v) for key, v in writer.kv_data[0].items() if v.value != []}
    kind = {"general.architecture": string(architecture), "general.type": string("model")}
    return {**kind, **keys, **_sampling(folder, keys)}


def _hub_id(folder: Path) -> str | None:
    """`organization/model`, where the folder is a snapshot in the hub's cache and thus called by a hash."""
    if folder.parent.name != "snapshots" or not folder.parent.parent.name.startswith("models--"):
        return None
    return folder.parent.parent.name.removeprefix("models--").replace("--", "/", 1)


def _describe_by_id(values: Any, hub_id: str, folder_name: str, total: int) -> None:
    """Fill what the card does not say from the model's id on the hub instead of from the folder's name."""
    model, organization, *parts = gguf.Metadata.get_model_id_components(hub_id, total)
    if values.name in (folder_name, gguf.Metadata.id_to_title(folder_name)):
        values.name = gguf.Metadata.id_to_title(model)
    if values.organization is None and organization is not None:
        values.organization = gguf.Metadata.id_to_title(organization)
    for key, part in zip(("basename", "finetune", "version"), parts, strict=False):
        if getattr(values, key) is None:
            setattr(values, key, part)


def _typed(given: Any) -> MetadataValue:
    """gguf-py's own value; it leaves the type of a list's elements to be found out when it writes."""
    element = None
    if given.type == GGUFValueType.ARRAY:
        element = given.sub_type or GGUFValueType.get_type(given.value[0])
    return MetadataValue(given.value, given.type, element)


def _described(folder: Path, name: str | None, total: int, warnings: list[str]) -> Any:
    logging.getLogger("metadata").setLevel(logging.ERROR)
    try:
        return gguf.Metadata.load(None, folder, name, total)
    except Exception as error:  # gguf-py raises whatever comes; a README is no reason to refuse the model
        warnings.append(f"the model card was left out: it cannot be read ({type(error).__name__})")
        return gguf.Metadata(name=name)


def _sampling(folder: Path, keys: Metadata) -> Metadata:
    """The repetition penalty, which not every version of gguf-py takes over."""
    key = "general.sampling.penalty_repeat"
    value = read_json_if_there(folder / "generation_config.json").get("repetition_penalty")
    if key in keys or isinstance(value, bool) or not isinstance(value, int | float):
        return {}
    return {key: f32(value)}


def _parameters(tensors: Sequence[Tensor]) -> tuple[int, int, int, int]:
    """Total, shared, and one expert's parameters, and the number of experts. Same count as gguf-py's writer."""
    total = shared = expert = n_experts = n_stacked = 0
    for tensor in tensors:
        total += tensor.n_values
        if "_exps." in tensor.name and len(tensor.shape) >= 3:
            count = tensor.shape[-3]
            expert += tensor.n_values // count
            n_experts += count
            n_stacked += 1
        else:
            shared += tensor.n_values
    return total, shared, expert, n_experts // n_stacked if n_stacked else 0
