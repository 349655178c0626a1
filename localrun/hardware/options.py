"""What would fit: context × KV type × quantization, and which of it to take.

Knows the planner and the versions of a model by size; knows no network. Versions whose headers have not been read are
counted by their file size: the parts of the model keep their proportions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from localrun.hardware.devices import Device, Memory
from localrun.hardware.placement import all_layers
from localrun.hardware.planner import Planner
from localrun.hardware.shape import ModelShape
from localrun.params import EngineParams, KVType

CONTEXTS = (2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144)
KV_TYPES: tuple[KVType, ...] = ("f16", "q8_0", "q4_0")


@dataclass(frozen=True, slots=True)
class Version:
    """A quantization of the model, by the bytes of its weights."""

    name: str
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class Option:
    """One choice, and what becomes of it here."""

    version: str
    weight_bytes: int
    n_ctx: int
    kv_type: KVType
    total_bytes: int
    gpu_layers: int
    """As many as fit beside this context; 0 without a GPU."""
    fits: bool
    whole_on_gpu: bool

    @property
    def good(self) -> bool:
        """Fits, and nothing that could run on the GPU is left to the CPU."""
        return self.fits and self.whole_on_gpu


def scaled(shape: ModelShape, weight_bytes: int) -> ModelShape:
    """The shape of another quantization of the same model, with the same proportions."""
    factor = weight_bytes / max(1, shape.weight_bytes)
    layers = tuple(
        replace(layer, weight_bytes=int(layer.weight_bytes * factor), expert_bytes=int(layer.expert_bytes * factor))
        for layer in shape.layers
    )
    return replace(
        shape,
        layers=layers,
        input_bytes=int(shape.input_bytes * factor),
        output_bytes=int(shape.output_bytes * factor),
        other_bytes=int(shape.other_bytes * factor),
    )


def contexts(trained: int, extra: Iterable[int] = ()) -> list[int]:
    """Context lengths worth showing: powers of two up to the trained length, that length, and `extra`."""
    lengths = {n for n in CONTEXTS if n <= trained} | {min(trained, CONTEXTS[-1])} | set(extra)
    return sorted(lengths)


def options(
    shape: ModelShape,
    versions: Sequence[Version],
    params: EngineParams,
    devices: Sequence[Device],
    memory: Memory,
    *,
    lengths: Sequence[int],
    kv_types: Sequence[KVType] = KV_TYPES,
    correction: float = 1.0,
) -> list[Option]:
    """Every combination, versions from small to large."""
    found = []
    for version in sorted(versions, key=lambda v: v.weight_bytes):
        other = scaled(shape, version.weight_bytes)
        for kv_type in kv_types:
            planner = Planner(other, replace(params, kv_type=kv_type, n_ctx=None), devices, memory, correction)
            for n_ctx in lengths:
                layers = planner.most_layers(n_ctx)
                placement = planner.placement(n_ctx, layers or 0)
                found.append(
                    Option(
                        version=version.name,
                        weight_bytes=version.weight_bytes,
                        n_ctx=n_ctx,
                        kv_type=kv_type,
                        total_bytes=placement.total,
                        gpu_layers=layers or 0,
                        fits=layers is not None,
                        whole_on_gpu=not devices or layers == all_layers(other),
                    )
                )
    return found


def advice(found: Sequence[Option], trained: int) -> str:
    """One sentence: the largest version for a usual context, and the largest for a long one."""
    usual = _largest(found, min(8192, trained))
    long = _largest(found, min(32768, trained))
    if usual is None:
        fitting = [option for option in found if option.fits]
        if not fitting:
            return "no version fits this machine: take a smaller model"
        best = max(fitting, key=lambda o: (o.weight_bytes, o.n_ctx))
        where = " with a part of the layers on the CPU" if best.gpu_layers or not best.whole_on_gpu else ""
        return f"take {_phrase(best)}{where}"
    if long is None or (long.version, long.kv_type) == (usual.version, usual.kv_type):
        best = long or usual
        return f"take {_phrase(best)}"
    return f"take {_phrase(usual)} or {_phrase(long)}"


def _largest(found: Sequence[Option], n_ctx: int) -> Option | None:
    """The largest version that is good at `n_ctx` with a KV type that costs no quality worth mentioning."""
    good = [o for o in found if o.good and o.n_ctx >= n_ctx and o.kv_type in ("f16", "q8_0")]
    nearest = min((o.n_ctx for o in good), default=0)
    good = [option for option in good if option.n_ctx == nearest]
    return max(good, key=lambda o: (o.weight_bytes, o.kv_type == "f16"), default=None)


def _phrase(option: Option) -> str:
    kv = "" if option.kv_type == "f16" else f" (--kv-type {option.kv_type})"
    return f"{option.version} at {length(option.n_ctx)}{kv}"


def length(n_ctx: int) -> str:
    """`8k` for 8,192 tokens, as people write context lengths."""
    return f"{n_ctx // 1024}k" if n_ctx % 1024 == 0 and n_ctx else f"{n_ctx:,}"
