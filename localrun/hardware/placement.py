"""Which device each part of a model lies on, and how many bytes that makes there.

Knows llama.cpp's rules (`load_tensors`): layers go to the GPU from the last one on, the output layer first of all, the
embedding never; several GPUs share the layers in proportion to their free memory. Chooses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
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
) -> Placement:
    """Bytes on each device with `gpu_layers` layers offloaded, the experts of the first `experts_in_ram` layers not."""
    count = min(gpu_layers, all_layers(shape)) if devices else 0
    first = all_layers(shape) - count
    owners = [_owner(i - first, count, devices) for i in range(first, all_layers(shape))]
    ram = _Sum(weights=shape.input_bytes + shape.other_bytes)
    gpus = [_Sum() for _ in devices]
    for i, layer in enumerate(shape.layers):
        place_of = gpus[owners[i - first]] if i >= first else ram
        experts = layer.expert_bytes if first <= i < experts_in_ram else 0
        place_of.weights += layer.weight_bytes - experts
        ram.weights += experts
        place_of.kv += layer_kv_bytes(shape, layer, context)
        place_of.state += layer_state_bytes(shape, layer, context)
    if count:
        gpus[owners[-1]].weights += shape.output_bytes  # a tied output is copied there
    elif not shape.tied:
        ram.weights += shape.output_bytes
    compute = compute_bytes(shape, context)
    used = {owners[i] for i in range(len(owners))}
    for number, gpu in enumerate(gpus):
        gpu.compute = compute if number in used else 0
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


def _owner(position: int, count: int, devices: Sequence[Device]) -> int:
    """Which device has the offloaded layer at `position` of `count`."""
    total = sum(device.free for device in devices) or 1
    share = position / count
    for number, reached in enumerate(accumulate(device.free / total for device in devices)):
        if share < reached:
            return number
    return len(devices) - 1
