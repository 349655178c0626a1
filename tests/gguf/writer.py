"""Writes small GGUF files for tests, byte by byte, correct ones and damaged ones.

Own code on purpose, so that a test never checks a reader against itself; `gguf-py` serves as a second opinion.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from localrun.gguf.types import SCALAR_FORMATS, TENSOR_TYPES, ValueType

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = ValueType

MODEL_KEYS: dict[str, Any] = {
    "general.architecture": "llama",
    "general.type": "model",
    "general.name": "Tiny Test",
    "general.license": "mit",
    "general.file_type": (U32, 0),
    "llama.block_count": (U32, 2),
    "llama.context_length": (U32, 128),
    "llama.embedding_length": (U32, 64),
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["a", "b", "é", "🙂"],
    "tokenizer.ggml.scores": (F32, [0.5, 1.0, -2.0, 0.0]),
    "tokenizer.chat_template": "{{ messages[0].content }}",
}
MODEL_TENSORS: list[tuple[str, Sequence[int], int]] = [
    ("token_embd.weight", (64, 4), 0),
    ("blk.0.attn_q.weight", (64, 64), 2),
    ("output_norm.weight", (64,), 0),
]


def text(value: str | bytes) -> bytes:
    """A length and the bytes."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def _plain(value_type: int, value: Any) -> bytes:
    return text(value) if value_type == STRING else struct.pack("<" + SCALAR_FORMATS[value_type], value)


def key_value(key: str | bytes, value: Any) -> bytes:
    """One metadata entry. `value` is a string, a bool, a list of strings, or a pair (type, value or list)."""
    if isinstance(value, tuple):
        value_type, value = value
    elif isinstance(value, bool):
        value_type = BOOL
    else:
        value_type = STRING
    if isinstance(value, list):
        head = struct.pack("<IIQ", ARRAY, value_type, len(value))
        return text(key) + head + b"".join(_plain(value_type, v) for v in value)
    return text(key) + struct.pack("<I", value_type) + _plain(value_type, value)


def tensor_info(name: str | bytes, shape: Sequence[int], type_number: int, offset: int) -> bytes:
    return (
        text(name)
        + struct.pack("<I", len(shape))
        + struct.pack(f"<{len(shape)}Q", *shape)
        + struct.pack("<IQ", type_number, offset)
    )


def tensor_bytes(shape: Sequence[int], type_number: int) -> int:
    count = 1
    for dim in shape:
        count *= dim
    kind = TENSOR_TYPES[type_number]
    return count // kind.block_size * kind.block_bytes


def padded(size: int, alignment: int = 32) -> int:
    return -(-size // alignment) * alignment


def header(
    keys: Iterable[bytes],
    infos: Iterable[bytes] = (),
    *,
    version: int = 3,
    n_keys: int | None = None,
    n_tensors: int | None = None,
) -> bytes:
    """A header of entries made by `key_value` and `tensor_info`; the counts can be falsified."""
    key_list, info_list = list(keys), list(infos)
    counts = (
        len(info_list) if n_tensors is None else n_tensors,
        len(key_list) if n_keys is None else n_keys,
    )
    return b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(key_list) + b"".join(info_list)


def gguf_bytes(
    metadata: Mapping[str, Any] | None = None,
    tensors: Sequence[tuple[str, Sequence[int], int]] | None = None,
    *,
    alignment: int = 32,
    version: int = 3,
) -> bytes:
    """A whole correct file; the tensor data counts up, so that no two blocks are equal."""
    keys = [key_value(k, v) for k, v in (MODEL_KEYS if metadata is None else metadata).items()]
    if alignment != 32:
        keys.append(key_value("general.alignment", (U32, alignment)))
    infos, offset = [], 0
    for name, shape, type_number in MODEL_TENSORS if tensors is None else tensors:
        infos.append(tensor_info(name, shape, type_number, offset))
        offset += padded(tensor_bytes(shape, type_number), alignment)
    head = header(keys, infos, version=version)
    head += bytes(padded(len(head), alignment) - len(head))
    return head + bytes(i * 7 % 251 for i in range(offset))


def write_gguf(path: Path, metadata: Mapping[str, Any] | None = None, **more: Any) -> Path:
    """Write `gguf_bytes(...)` to `path`; `metadata` adds to the usual keys, None values remove them."""
    keys = {k: v for k, v in (MODEL_KEYS | dict(metadata or {})).items() if v is not None}
    path.write_bytes(gguf_bytes(keys, **more))
    return path


def write_shards(folder: Path, name: str = "tiny", count: int = 3) -> list[Path]:
    """A model of `count` tensors, split with one tensor a file."""
    paths = []
    for number in range(count):
        split = {
            "split.no": (U16, number),
            "split.count": (U16, count),
            "split.tensors.count": (I32, count),
        }
        keys = MODEL_KEYS | split if number == 0 else split
        path = folder / f"{name}-{number + 1:05d}-of-{count:05d}.gguf"
        path.write_bytes(gguf_bytes(keys, [(f"blk.{number}.attn_q.weight", (64, 64), 2)]))
        paths.append(path)
    return paths
