"""Shapes of published models, written down as facts, and GGUF headers made of them.

A header is written into a sparse file of the model's real size, so that our reader and the engine both accept it
without a byte of weights on disk. The vocabulary is left out (`no_vocab`); its size is in the header.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gguf.writer import F32, I32, U32, header, key_value, padded, tensor_bytes, tensor_info

Tensor = tuple[str, tuple[int, ...], int]
_TYPE_F32 = 0
Q4_0, Q8_0, Q4_K, MXFP4 = 2, 8, 12, 39


@dataclass(frozen=True)
class Shape:
    """One model: what its configuration file says."""

    name: str
    arch: str
    layers: int
    embd: int
    heads: int
    kv_heads: int
    ff: int
    vocab: int
    ctx: int
    kv_bytes_per_token: int
    """Bytes of keys and values of one token, F16, all layers that keep every token (by hand from the figures)."""
    head: int = 0
    tied: bool = False
    experts: int = 0
    experts_used: int = 0
    ff_expert: int = 0
    window: int = 0
    kv_bytes_window: int = 0
    """The same for the layers with a sliding window."""
    weight_type: int = Q8_0
    keys: dict[str, Any] = field(default_factory=dict)
    kv_heads_by_layer: tuple[int, ...] = ()
    mla: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Latent, rotary part, key head, value head: DeepSeek's attention."""
    q_lora: int = 0
    dense_lead: int = 0
    shared_experts: int = 0
    state_bytes: int = 0
    """Bytes of recurrent state of one sequence, F32, all layers."""

    @property
    def head_dim(self) -> int:
        return self.head or self.embd // self.heads


SHAPES = (
    Shape("Llama-2-7B", "llama", 32, 4096, 32, 32, 11008, 32000, 4096, 524288),
    Shape("Llama-3.1-8B", "llama", 32, 4096, 32, 8, 14336, 128256, 131072, 131072, weight_type=Q4_K),
    Shape("Llama-3.1-70B", "llama", 80, 8192, 64, 8, 28672, 128256, 131072, 327680, weight_type=Q4_K),
    Shape("Llama-3.2-1B", "llama", 16, 2048, 32, 8, 8192, 128256, 131072, 32768, tied=True),
    Shape("Mistral-7B-v0.3", "llama", 32, 4096, 32, 8, 14336, 32768, 32768, 131072),
    Shape("SmolLM2-1.7B", "llama", 24, 2048, 32, 32, 8192, 49152, 8192, 196608, tied=True),
    Shape(
        "Mixtral-8x7B", "llama", 32, 4096, 32, 8, 14336, 32000, 32768, 131072,
        experts=8, experts_used=2, ff_expert=14336, weight_type=Q4_K,
    ),
    Shape("Qwen2.5-7B", "qwen2", 28, 3584, 28, 4, 18944, 152064, 32768, 57344),
    Shape("Qwen3-0.6B", "qwen3", 28, 1024, 16, 8, 3072, 151936, 40960, 114688, head=128, tied=True),
    Shape("Qwen3-8B", "qwen3", 36, 4096, 32, 8, 12288, 151936, 40960, 147456, head=128, weight_type=Q4_K),
    Shape(
        "Qwen3-30B-A3B", "qwen3moe", 48, 2048, 32, 4, 6144, 151936, 40960, 98304,
        head=128, experts=128, experts_used=8, ff_expert=768, weight_type=Q4_K,
    ),
    Shape(
        "Gemma-2-9B", "gemma2", 42, 3584, 16, 8, 14336, 256000, 8192, 172032,
        head=256, tied=True, window=4096, kv_bytes_window=172032,
    ),
    Shape(
        "Gemma-3-4B", "gemma3", 34, 2560, 8, 4, 10240, 262144, 131072, 20480,
        head=256, tied=True, window=1024, kv_bytes_window=118784,
    ),
    Shape(
        "Gemma-3-27B", "gemma3", 62, 5376, 32, 16, 21504, 262144, 131072, 81920,
        head=128, tied=True, window=1024, kv_bytes_window=425984, weight_type=Q4_0,
    ),
    Shape("Phi-3-mini-4k", "phi3", 32, 3072, 32, 32, 8192, 32064, 4096, 393216),
    Shape("Phi-4-14B", "phi3", 40, 5120, 40, 10, 17920, 100352, 16384, 204800, weight_type=Q4_K),
    Shape("OLMo-2-7B", "olmo2", 32, 4096, 32, 32, 11008, 100352, 4096, 524288),
    Shape(
        "gpt-oss-20b", "gpt-oss", 24, 2880, 64, 8, 2880, 201088, 131072, 24576,
        head=64, experts=32, experts_used=4, ff_expert=2880, window=128, kv_bytes_window=24576, weight_type=MXFP4,
    ),
    Shape(
        "DeepSeek-V2-Lite", "deepseek2", 27, 2048, 16, 1, 10944, 102400, 163840, 31104,
        experts=64, experts_used=6, ff_expert=1408, mla=(512, 64, 192, 128), dense_lead=1, shared_experts=2,
        weight_type=Q4_0,
    ),
    Shape(
        "DeepSeek-V3", "deepseek2", 61, 7168, 128, 1, 18432, 129280, 163840, 70272,
        experts=256, experts_used=8, ff_expert=2048, mla=(512, 64, 192, 128), q_lora=1536, dense_lead=3,
        shared_experts=1, weight_type=Q4_K,
    ),
    Shape(
        "LFM2-1.2B", "lfm2", 16, 2048, 32, 8, 8192, 65536, 128000, 12288, tied=True,
        kv_heads_by_layer=(0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0), state_bytes=10 * 2 * 2048 * 4,
    ),
    Shape(
        "Mamba-2.8B", "mamba", 64, 2560, 0, 0, 0, 50280, 1048576, 0, tied=True,
        state_bytes=64 * (3 * 5120 + 16 * 5120) * 4,
    ),
)  # fmt: skip
"""Multi-head, grouped-query, latent and windowed attention, mixtures of experts, and running states."""

BY_NAME = {shape.name: shape for shape in SHAPES}


def write_header(folder: Path, shape: Shape) -> Path:
    """A sparse GGUF file of this shape under `folder`."""
    path = folder / f"{shape.name}.gguf"
    infos, offset = [], 0
    for name, dims, type_number in tensors(shape):
        infos.append(tensor_info(name, dims, type_number, offset))
        offset += padded(tensor_bytes(dims, type_number))
    head = header([key_value(key, value) for key, value in metadata(shape).items()], infos)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(padded(len(head)) + offset)
    return path


def metadata(shape: Shape) -> dict[str, Any]:
    """The keys that the engine asks for."""
    a = shape.arch
    keys: dict[str, Any] = {
        "general.architecture": a,
        "general.name": shape.name,
        "tokenizer.ggml.model": "no_vocab",
        f"{a}.vocab_size": (U32, shape.vocab),
        f"{a}.block_count": (U32, shape.layers),
        f"{a}.context_length": (U32, shape.ctx),
        f"{a}.embedding_length": (U32, shape.embd),
        f"{a}.feed_forward_length": (U32, shape.ff),
        f"{a}.attention.head_count": (U32, shape.heads),
        f"{a}.attention.head_count_kv": (I32, list(shape.kv_heads_by_layer)) if shape.kv_heads_by_layer
        else (U32, shape.kv_heads),
        f"{a}.attention.layer_norm_rms_epsilon": (F32, 1e-5),
    }  # fmt: skip
    if shape.head:
        keys |= {f"{a}.attention.key_length": (U32, shape.head), f"{a}.attention.value_length": (U32, shape.head)}
    if shape.experts:
        keys |= {f"{a}.expert_count": (U32, shape.experts), f"{a}.expert_used_count": (U32, shape.experts_used)}
        keys |= {f"{a}.expert_feed_forward_length": (U32, shape.ff_expert)}
    if shape.window:
        keys[f"{a}.attention.sliding_window"] = (U32, shape.window)
    if a == "deepseek2":
        latent, rope, key, value = shape.mla
        keys |= {
            f"{a}.attention.kv_lora_rank": (U32, latent),
            f"{a}.attention.key_length": (U32, latent + rope),
            f"{a}.attention.value_length": (U32, latent),
            f"{a}.attention.key_length_mla": (U32, key),
            f"{a}.attention.value_length_mla": (U32, value),
            f"{a}.rope.dimension_count": (U32, rope),
            f"{a}.leading_dense_block_count": (U32, shape.dense_lead),
            f"{a}.expert_shared_count": (U32, shape.shared_experts),
        }
        if shape.q_lora:
            keys[f"{a}.attention.q_lora_rank"] = (U32, shape.q_lora)
    if a == "lfm2":
        keys[f"{a}.shortconv.l_cache"] = (U32, 3)
    if a == "mamba":
        keys |= {
            f"{a}.ssm.conv_kernel": (U32, 4),
            f"{a}.ssm.inner_size": (U32, 2 * shape.embd),
            f"{a}.ssm.state_size": (U32, 16),
            f"{a}.ssm.time_step_rank": (U32, shape.embd // 16),
        }
    return keys | shape.keys


def tensors(shape: Shape) -> Iterator[Tensor]:
    """Names, sizes (row length first) and types of all tensors."""
    kind = Q8_0 if shape.weight_type == MXFP4 else shape.weight_type
    yield "token_embd.weight", (shape.embd, shape.vocab), kind
    norm = "token_embd_norm.weight" if shape.arch == "lfm2" else "output_norm.weight"
    yield norm, (shape.embd,), _TYPE_F32
    if not shape.tied:
        yield "output.weight", (shape.embd, shape.vocab), kind
    for layer in range(shape.layers):
        for name, dims, type_number in _layer(shape, layer, kind):
            yield f"blk.{layer}.{name}", dims, type_number


def _layer(s: Shape, layer: int, kind: int) -> Iterator[Tensor]:
    if s.arch == "mamba":
        yield from _mamba(s, kind)
        return
    if s.arch != "olmo2":
        yield "attn_norm.weight", (s.embd,), _TYPE_F32
    if s.kv_heads_by_layer and s.kv_heads_by_layer[layer] == 0:
        yield "shortconv.conv.weight", (3, s.embd), _TYPE_F32
        yield "shortconv.in_proj.weight", (s.embd, 3 * s.embd), kind
        yield "shortconv.out_proj.weight", (s.embd, s.embd), kind
    elif s.arch == "deepseek2":
        yield from _latent_attention(s, kind)
    else:
        yield from _attention(s, kind)
    if s.arch in ("gemma2", "gemma3", "olmo2", "gpt-oss"):
        yield "post_attention_norm.weight", (s.embd,), _TYPE_F32
    if s.arch in ("gemma2", "gemma3", "olmo2"):
        yield "post_ffw_norm.weight", (s.embd,), _TYPE_F32
    if s.arch not in ("olmo2", "gpt-oss"):
        yield "ffn_norm.weight", (s.embd,), _TYPE_F32
    if s.experts and layer >= s.dense_lead:
        yield from _experts(s, kind)
    elif s.arch == "phi3":
        yield "ffn_up.weight", (s.embd, 2 * s.ff), kind
        yield "ffn_down.weight", (s.ff, s.embd), kind
    else:
        yield "ffn_gate.weight", (s.embd, s.ff), kind
        yield "ffn_up.weight", (s.embd, s.ff), kind
        yield "ffn_down.weight", (s.ff, s.embd), kind


def _attention(s: Shape, kind: int) -> Iterator[Tensor]:
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    if s.arch == "phi3":
        yield "attn_qkv.weight", (s.embd, q + 2 * kv), kind
    else:
        for name, width in (("q", q), ("k", kv), ("v", kv)):
            yield f"attn_{name}.weight", (s.embd, width), kind
            if s.arch in ("qwen2", "gpt-oss"):
                yield f"attn_{name}.bias", (width,), _TYPE_F32
    yield "attn_output.weight", (q, s.embd), kind
    if s.arch in ("qwen3", "qwen3moe", "gemma3", "lfm2"):
        yield "attn_q_norm.weight", (s.head_dim,), _TYPE_F32
        yield "attn_k_norm.weight", (s.head_dim,), _TYPE_F32
    if s.arch == "olmo2":
        yield "attn_q_norm.weight", (q,), _TYPE_F32
        yield "attn_k_norm.weight", (kv,), _TYPE_F32
    if s.arch == "gpt-oss":
        yield "attn_sinks.weight", (s.heads,), _TYPE_F32
        yield "attn_output.bias", (s.embd,), _TYPE_F32


def _latent_attention(s: Shape, kind: int) -> Iterator[Tensor]:
    latent, rope, key, value = s.mla
    if s.q_lora:
        yield "attn_q_a.weight", (s.embd, s.q_lora), kind
        yield "attn_q_a_norm.weight", (s.q_lora,), _TYPE_F32
        yield "attn_q_b.weight", (s.q_lora, s.heads * key), kind
    else:
        yield "attn_q.weight", (s.embd, s.heads * key), kind
    yield "attn_kv_a_mqa.weight", (s.embd, latent + rope), kind
    yield "attn_kv_a_norm.weight", (latent,), _TYPE_F32
    yield "attn_k_b.weight", (key - rope, latent, s.heads), Q8_0
    yield "attn_v_b.weight", (latent, value, s.heads), kind
    yield "attn_output.weight", (s.heads * value, s.embd), kind


def _experts(s: Shape, kind: int) -> Iterator[Tensor]:
    kind = MXFP4 if s.weight_type == MXFP4 else kind
    yield "ffn_gate_inp.weight", (s.embd, s.experts), _TYPE_F32
    yield "ffn_gate_exps.weight", (s.embd, s.ff_expert, s.experts), kind
    yield "ffn_up_exps.weight", (s.embd, s.ff_expert, s.experts), kind
    yield "ffn_down_exps.weight", (s.ff_expert, s.embd, s.experts), kind
    if s.arch == "gpt-oss":
        yield "ffn_gate_inp.bias", (s.experts,), _TYPE_F32
        yield "ffn_gate_exps.bias", (s.ff_expert, s.experts), _TYPE_F32
        yield "ffn_up_exps.bias", (s.ff_expert, s.experts), _TYPE_F32
        yield "ffn_down_exps.bias", (s.embd, s.experts), _TYPE_F32
    if s.shared_experts:
        width = s.ff_expert * s.shared_experts
        yield "ffn_gate_shexp.weight", (s.embd, width), kind
        yield "ffn_up_shexp.weight", (s.embd, width), kind
        yield "ffn_down_shexp.weight", (width, s.embd), kind


def _mamba(s: Shape, kind: int) -> Iterator[Tensor]:
    inner, state, rank = 2 * s.embd, 16, s.embd // 16
    yield "attn_norm.weight", (s.embd,), _TYPE_F32
    yield "ssm_in.weight", (s.embd, 2 * inner), kind
    yield "ssm_conv1d.weight", (4, inner), _TYPE_F32
    yield "ssm_conv1d.bias", (inner,), _TYPE_F32
    yield "ssm_x.weight", (inner, rank + 2 * state), kind
    yield "ssm_dt.weight", (rank, inner), kind
    yield "ssm_dt.bias", (inner,), _TYPE_F32
    yield "ssm_a", (state, inner), _TYPE_F32
    yield "ssm_d", (inner,), _TYPE_F32
    yield "ssm_out.weight", (inner, s.embd), kind
