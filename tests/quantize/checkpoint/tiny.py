"""Tiny checkpoints made from nothing but names and shapes, so that no weights need to be stored.

Values come from a hash of (name, position), the same on every machine and with every numpy. Knows the safetensors
format; knows nothing of the product.
"""

from __future__ import annotations

import base64
import functools
import json
import lzma
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FIXTURES = Path(__file__).parent / "fixtures"


@functools.cache
def load(name: str) -> Any:
    """A recorded fixture. Shared by all who ask: not to be changed."""
    return json.loads(lzma.decompress((FIXTURES / f"{name}.json.xz").read_bytes()))


def save(name: str, value: Any) -> None:
    FIXTURES.mkdir(exist_ok=True)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    (FIXTURES / f"{name}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def noise(name: str, n: int) -> npt.NDArray[np.float32]:
    """`n` numbers between -1 and 1 (splitmix64 of the position, seeded with the name)."""
    x = np.arange(n, dtype=np.uint64) + np.uint64(zlib.crc32(name.encode()) << 32)
    x = x * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    x ^= x >> np.uint64(31)
    return ((x >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)).astype(np.float32)


def values(name: str, shape: tuple[int, ...], *, norms_around: float = 1.0) -> npt.NDArray[np.float32]:
    """Weights that keep activations near one through the layers, so that a mistake anywhere shows in the logits."""
    n = int(np.prod(shape))
    raw = noise(name, n)
    if "norm" in name.lower() and name.endswith("weight"):
        raw = norms_around + 0.3 * raw
    elif len(shape) == 1 or name.endswith("bias"):
        raw = 0.5 * raw
    else:
        raw = raw * np.float32(2.0 / np.sqrt(shape[-1]))
    return raw.astype(np.float32).reshape(shape)


def to_bfloat16(data: npt.NDArray[np.float32]) -> bytes:
    """Round to nearest even."""
    bits = data.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()


def encode(name: str, dtype: str, shape: tuple[int, ...], norms_around: float = 1.0) -> bytes:
    """The bytes of one weight in a safetensors dtype."""
    if dtype == "U8":
        raw = (noise(name, int(np.prod(shape))) + 1) / 2
        low, high = (118, 124) if name.endswith("scales") else (0, 256)
        return (low + raw * (high - low)).astype(np.uint8).tobytes()
    data = values(name, shape, norms_around=norms_around)
    if dtype == "BF16":
        return to_bfloat16(data)
    return data.astype({"F32": np.float32, "F16": np.float16}[dtype]).tobytes()


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """Write name → (dtype, shape, bytes)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data for _, _, data in tensors.values()))


def write_weights(
    folder: Path, weights: Iterable[tuple[str, str, list[int]]], *, n_shards: int = 2, norms_around: float = 1.0
) -> None:
    """Write (name, dtype, shape) as shards with an index, or as one file."""
    ready = {
        name: (dtype, tuple(shape), encode(name, dtype, tuple(shape), norms_around)) for name, dtype, shape in weights
    }
    if n_shards == 1:
        write_safetensors(folder / "model.safetensors", ready)
        return
    names, weight_map = list(ready), {}
    for part in range(n_shards):
        file = f"model-{part + 1:05d}-of-{n_shards:05d}.safetensors"
        mine = names[part::n_shards]
        write_safetensors(folder / file, {name: ready[name] for name in mine})
        weight_map |= dict.fromkeys(mine, file)
    index = {"metadata": {"total_size": sum(len(d) for _, _, d in ready.values())}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write_files(folder: Path, files: Mapping[str, Any]) -> None:
    """Write text files; an object becomes JSON, a `{"base64": …}` bytes."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict) and set(content) == {"base64"}:
            path.write_bytes(base64.b64decode(content["base64"]))
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def write_checkpoint(folder: Path, fixture: Mapping[str, Any], tokenizers: Mapping[str, Any]) -> Path:
    """Rebuild a recorded checkpoint with its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    write_files(folder, fixture["files"])
    write_files(folder, tokenizers[fixture["tokenizer"]]["files"])
    write_weights(folder, fixture["weights"], n_shards=fixture["shards"], norms_around=fixture["norms_around"])
    return folder
