"""Leaving layers out of a model: tensors dropped, the rest renumbered, and metadata that counts layers brought in line.

Invariant: every array with one element per layer, and every count of layers, agrees with the layers that are left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from quantize.errors import RecipeError
from quantize.model import MetadataValue, Model, Tensor
from quantize.recipe.facts import Facts, layer_of

_LAYER = re.compile(r"^blk\.\d+\.")


def parse_layers(text: str) -> frozenset[int]:
    """`4-7,12` → {4, 5, 6, 7, 12}.

    Raises:
        RecipeError: the text is no list of layers and ranges.
    """
    layers: set[int] = set()
    for item in text.split(","):
        first, dash, last = item.strip().partition("-")
        try:
            start, stop = int(first), int(last) if dash else int(first)
        except ValueError:
            raise RecipeError(f"'{text}' is no list of layers", hint="for example: --prune-layers 20-23") from None
        if stop < start:
            raise RecipeError(f"the range {item.strip()} of layers is empty", hint="write the smaller number first")
        layers.update(range(start, stop + 1))
    return frozenset(layers)


def prune(model: Model, layers: frozenset[int]) -> Model:
    """The model without these layers. Weights are not touched.

    Raises:
        RecipeError: a layer that is not there, or none would be left.
    """
    n_layer = Facts.of(model).n_layer
    absent = sorted(layer for layer in layers if not 0 <= layer < n_layer)
    if absent:
        raise RecipeError(
            f"there is no layer {absent[0]} in a model of {n_layer} layers", hint=f"layers are 0 to {n_layer - 1}"
        )
    kept = [layer for layer in range(n_layer) if layer not in layers]
    if not kept:
        raise RecipeError(f"all {n_layer} layers would be pruned", hint="keep at least one")
    new_number = {old: new for new, old in enumerate(kept)}
    tensors = [renumbered for t in model.tensors if (renumbered := _renumber(t, new_number)) is not None]
    metadata = {key: _shorten(key, value, n_layer, kept, model) for key, value in model.metadata.items()}
    return replace(model, tensors=tuple(tensors), metadata=metadata)


def _renumber(tensor: Tensor, new_number: dict[int, int]) -> Tensor | None:
    layer = layer_of(tensor.name)
    if layer is None:
        return tensor
    if layer not in new_number:
        return None
    return replace(tensor, name=_LAYER.sub(f"blk.{new_number[layer]}.", tensor.name))


def _shorten(key: str, value: MetadataValue, n_layer: int, kept: list[int], model: Model) -> MetadataValue:
    prefix = model.architecture + "."
    if key == prefix + "block_count":
        return replace(value, value=len(kept))
    if key == prefix + "leading_dense_block_count" and isinstance(value.value, int):
        return replace(value, value=sum(layer < value.value for layer in kept))
    items = value.value
    if key.startswith(prefix) and isinstance(items, Sequence) and not isinstance(items, str) and len(items) == n_layer:
        return replace(value, value=[items[layer] for layer in kept])
    return value
