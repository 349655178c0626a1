"""Which device each part of a model lies on, and how many bytes that makes there.

Knows llama.cpp's rules (`load_tensors`): layers go to the GPU from the last one on, the output layer first of all, the
embedding never; several GPUs share the layers in proportion to their free memory, or as they are told. Chooses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from localrun.hardware.devices import Device
from localrun.hardware.footprint import (
    ContextSize,
    Footprint,
    compute_bytes,
    layer_kv_bytes,
    layer_state_bytes,
)
from localrun.hardware.shape import ModelShape
from localrun.spread import Spread


@dataclass(frozen=True, slots=True)
class Placement:
    """`gpu_layers` counts the output layer as one, as `--gpu-layers` does."""

    gpu_layers: int
    experts_in_ram: int
    """Layers, counted from the first, whose experts lie in RAM although the rest of them is on the GPU."""
    ram: Footprint
    gpus: tuple[Footprint, ...]
    """In the order of the devices."""

    @property
    def total(self) -> int:
        return self.ram.total + sum(gpu.total for gpu in self.gpus)


def all_layers(shape: ModelShape) -> int:
    """What `gpu_layers` is when everything but the embedding is on the GPU."""
    return len(shape.layers) + 1


def place(
    shape: ModelShape,
    context: ContextSize,
    devices: Sequence[Device] = (),
    gpu_layers: int = 0,
    *,
    experts_in_ram: int = 0,
    spread: Spread | None = None,
) -> Placement:
    """Bytes on each device with `gpu_layers` layers offloaded, the experts of the first `experts_in_ram` layers not."""
    count = min(gpu_layers, all_layers(shape)) if devices else 0
    first = all_layers(shape) - count
    shares = _shares(devices, spread)
    mode = spread.split_mode if spread is not None else None
    ram = _Sum(weights=shape.input_bytes + shape.other_bytes)
    gpus = [_Sum() for _ in devices]

    def parts(layer: int, *, split: bool) -> Iterator[tuple[_Sum, float]]:
        """Who holds a layer, and how much of it."""
        if layer < first:
            yield ram, 1.0
        elif split:
            yield from zip(gpus, shares, strict=True)
        else:
            yield gpus[_owner((layer - first) / count, shares)], 1.0

    for i, layer in enumerate(shape.layers):
        experts = layer.expert_bytes if first <= i < experts_in_ram else 0
        ram.weights += experts
        for sum_, share in parts(i, split=mode in ("row", "tensor")):
            sum_.weights += int((layer.weight_bytes - experts) * share)
        for sum_, share in parts(i, split=mode == "tensor"):
            sum_.kv += int(layer_kv_bytes(shape, layer, context) * share)
            sum_.state += int(layer_state_bytes(shape, layer, context) * share)
    if count or not shape.tied:  # a tied output is copied to the GPU that computes it
        for sum_, share in parts(len(shape.layers), split=mode in ("row", "tensor")):
            sum_.weights += int(shape.output_bytes * share)
    compute = compute_bytes(shape, context)
    for gpu, share in zip(gpus, shares, strict=True):
        gpu.compute = compute if count and share else 0
    whole = count == all_layers(shape) and not experts_in_ram
    # Beside a GPU that has everything, RAM holds the inputs of a batch only.
    ram.compute = 4 * context.rows * shape.n_embd if whole else compute
    return Placement(count, experts_in_ram if count else 0, ram.frozen(), tuple(gpu.frozen() for gpu in gpus))


def fits(placement: Placement, devices: Sequence[Device], ram_budget: int, correction: float = 1.0) -> bool:
    """Whether every device has room. On unified memory, what the GPU takes is taken from RAM too."""
    shared = 0
    for device, need in zip(devices, placement.gpus, strict=True):
        if need.total * correction > device.budget:
            return False
        shared += need.total if device.kind == "unified" else 0
    return (placement.ram.total + shared) * correction <= ram_budget


@dataclass(slots=True)
class _Sum:
    weights: int = 0
    kv: int = 0
    state: int = 0
    compute: int = 0

    def frozen(self) -> Footprint:
        return Footprint(self.weights, self.kv, self.state, self.compute)


def _shares(devices: Sequence[Device], spread: Spread | None) -> list[float]:
    """What part of the offloaded model each device gets: as asked for, else by free memory."""
    if not devices:
        return []
    asked = spread.tensor_split if spread is not None else ()
    parts = [*asked, *[0.0] * (len(devices) - len(asked))] if asked else [float(device.free) for device in devices]
    total = sum(parts)
    return [part / total for part in parts] if total else [1 / len(parts) for _ in parts]


def _owner(position: float, shares: Sequence[float]) -> int:
    """Which device has the offloaded layer at `position`, from 0 to 1."""
    owner = next((number for number, reached in enumerate(accumulate(shares)) if position < reached), None)
    return owner if owner is not None else max(number for number, share in enumerate(shares) if share)
