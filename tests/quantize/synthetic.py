"""Small models with random weights, seen as the library sees a checkpoint, and a reader for what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.constants import GGMLQuantizationType, GGUFValueType, TokenType

from quantize.model import MetadataValue, Model, Tensor

V = GGUFValueType


def byte_letters() -> list[str]:
    """The letter that stands for each byte in byte-level vocabularies (GPT-2's table)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    extra = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(extra)) for byte in range(256)]


def vocabulary() -> dict[str, MetadataValue]:
    """All bytes as tokens, one merge, and an end of text that starts every text."""
    tokens = [*byte_letters(), "th", "<|end|>"]
    kinds = [int(TokenType.NORMAL)] * 257 + [int(TokenType.CONTROL)]
    return {
        "tokenizer.ggml.model": MetadataValue("gpt2", V.STRING),
        "tokenizer.ggml.pre": MetadataValue("smollm", V.STRING),
        "tokenizer.ggml.tokens": MetadataValue(tokens, V.ARRAY, V.STRING),
        "tokenizer.ggml.token_type": MetadataValue(kinds, V.ARRAY, V.INT32),
        "tokenizer.ggml.merges": MetadataValue(["t h"], V.ARRAY, V.STRING),
        "tokenizer.ggml.bos_token_id": MetadataValue(257, V.UINT32),
        "tokenizer.ggml.eos_token_id": MetadataValue(257, V.UINT32),
        "tokenizer.ggml.add_bos_token": MetadataValue(True, V.BOOL),
    }


def tensor(name: str, values: np.ndarray, source: GGMLQuantizationType = GGMLQuantizationType.F32) -> Tensor:
    """A tensor whose weights lie in memory."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    rows = values.reshape(-1, values.shape[-1])

    def read(start: int, stop: int) -> np.ndarray:
        return rows[start:stop].copy()

    def read_raw(start: int, stop: int) -> np.ndarray:
        return rows[start:stop].view(np.uint8)

    keep = GGMLQuantizationType.F32 if values.ndim == 1 else None
    raw = read_raw if source == GGMLQuantizationType.F32 else None
    return Tensor(name, values.shape, source, read, keep_type=keep, read_raw=raw)


def llama(
    *,
    n_layer: int = 2,
    embd: int = 256,
    ff: int = 512,
    heads: int = 4,
    kv_heads: int = 2,
    tied: bool = True,
    n_expert: int = 0,
    seed: int = 0,
) -> Model:
    """A llama-type model that the engine can run."""
    rng = np.random.default_rng(seed)
    head = embd // heads

    def weight(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(2.0 / shape[-1] ** 0.5)

    parts: list[tuple[str, np.ndarray]] = [("token_embd.weight", weight(258, embd))]
    for i in range(n_layer):
        block = f"blk.{i}."
        parts += [(block + "attn_norm.weight", np.ones(embd)), (block + "ffn_norm.weight", np.ones(embd))]
        parts += [(block + "attn_q.weight", weight(embd, embd)), (block + "attn_output.weight", weight(embd, embd))]
        parts += [(block + f"attn_{kind}.weight", weight(kv_heads * head, embd)) for kind in "kv"]
        if n_expert:
            parts += [(block + "ffn_gate_inp.weight", weight(n_expert, embd) * 4)]
            parts += [(block + f"ffn_{kind}_exps.weight", weight(n_expert, ff, embd)) for kind in ("gate", "up")]
            parts += [(block + "ffn_down_exps.weight", weight(n_expert, embd, ff))]
        else:
            parts += [(block + f"ffn_{kind}.weight", weight(ff, embd)) for kind in ("gate", "up")]
            parts += [(block + "ffn_down.weight", weight(embd, ff))]
    parts.append(("output_norm.weight", np.ones(embd)))
    if not tied:
        parts.append(("output.weight", weight(258, embd)))
    numbers = {
        "block_count": n_layer,
        "context_length": 2048,
        "embedding_length": embd,
        "feed_forward_length": ff,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "vocab_size": 258,
        "rope.dimension_count": head,
    }
    if n_expert:
        numbers |= {"expert_count": n_expert, "expert_used_count": 2}
    metadata = {
        "general.architecture": MetadataValue("llama", V.STRING),
        "general.name": MetadataValue("synthetic", V.STRING),
        **{f"llama.{key}": MetadataValue(value, V.UINT32) for key, value in numbers.items()},
        "llama.attention.layer_norm_rms_epsilon": MetadataValue(1e-5, V.FLOAT32),
        **vocabulary(),
    }
    tensors = tuple(tensor(name, values) for name, values in parts)
    return Model("llama", metadata, tensors, sum(t.n_values * 4 for t in tensors), tied_output=tied)


def read_tensors(path: Path) -> dict[str, tuple[str, bytes]]:
    """Name → (type, bytes), by the gguf package: an independent reader."""
    return {t.name: (t.tensor_type.name, t.data.tobytes()) for t in GGUFReader(path).tensors}


def read_metadata(path: Path) -> dict[str, object]:
    return {key: field.contents() for key, field in GGUFReader(path).fields.items()}


def names(items: Sequence[Tensor]) -> list[str]:
    return [item.name for item in items]
