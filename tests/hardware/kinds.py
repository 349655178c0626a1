"""Small invented models of kinds whose memory is unusual: running states beside attention, and layers of unequal width.

The published models of these kinds differ in size only; what is tested with these is the rule, not the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.gguf.writer import BOOL, F32, I32, U32, header, key_value, padded, tensor_bytes, tensor_info
from tests.hardware.shapes import Q8_0, Tensor

_VOCAB, _EMBD = 1024, 256
_PLAIN = 0  # F32


def _common(arch: str, layers: int, **keys: Any) -> dict[str, Any]:
    return {
        "general.architecture": arch,
        "tokenizer.ggml.model": "no_vocab",
        f"{arch}.vocab_size": (U32, _VOCAB),
        f"{arch}.block_count": (U32, layers),
        f"{arch}.context_length": (U32, 32768),
        f"{arch}.embedding_length": (U32, _EMBD),
        f"{arch}.feed_forward_length": (U32, 512),
        f"{arch}.attention.layer_norm_rms_epsilon": (F32, 1e-6),
        **{f"{arch}.{key}": value for key, value in keys.items()},
    }


def _embeddings() -> Iterator[Tensor]:
    yield "token_embd.weight", (_EMBD, _VOCAB), Q8_0
    yield "output_norm.weight", (_EMBD,), _PLAIN


def _attention(layer: int, q: int, kv: int, out: int, head: int = 0) -> Iterator[Tensor]:
    yield f"blk.{layer}.attn_q.weight", (_EMBD, q), Q8_0
    yield f"blk.{layer}.attn_k.weight", (_EMBD, kv), Q8_0
    yield f"blk.{layer}.attn_v.weight", (_EMBD, kv), Q8_0
    yield f"blk.{layer}.attn_output.weight", (out, _EMBD), Q8_0
    if head:
        yield f"blk.{layer}.attn_q_norm.weight", (head,), _PLAIN
        yield f"blk.{layer}.attn_k_norm.weight", (head,), _PLAIN


def _feed_forward(layer: int) -> Iterator[Tensor]:
    yield f"blk.{layer}.ffn_gate.weight", (_EMBD, 512), Q8_0
    yield f"blk.{layer}.ffn_up.weight", (_EMBD, 512), Q8_0
    yield f"blk.{layer}.ffn_down.weight", (512, _EMBD), Q8_0


def granite_hybrid() -> tuple[dict[str, Any], list[Tensor]]:
    """Mamba 2 layers with a few of attention: those whose number of KV heads is not 0."""
    inner, state, groups, ssm_heads, kernel = 2 * _EMBD, 64, 1, 8, 4
    kv_heads = [0, 2, 0, 2]
    keys = _common(
        "granitehybrid", 4,
        **{
            "attention.head_count": (U32, 4), "attention.head_count_kv": (I32, kv_heads),
            "ssm.conv_kernel": (U32, kernel), "ssm.inner_size": (U32, inner), "ssm.state_size": (U32, state),
            "ssm.time_step_rank": (U32, ssm_heads), "ssm.group_count": (U32, groups),
        },
    )  # fmt: skip
    tensors = list(_embeddings())
    for layer, heads in enumerate(kv_heads):
        name = f"blk.{layer}."
        tensors += [(name + "attn_norm.weight", (_EMBD,), _PLAIN), (name + "ffn_norm.weight", (_EMBD,), _PLAIN)]
        if heads:
            tensors += _attention(layer, _EMBD, 64 * heads, _EMBD)
        else:
            wide = inner + 2 * groups * state
            tensors += [
                (name + "ssm_in.weight", (_EMBD, 2 * inner + 2 * groups * state + ssm_heads), Q8_0),
                (name + "ssm_conv1d.weight", (kernel, wide), _PLAIN),
                (name + "ssm_conv1d.bias", (wide,), _PLAIN),
                (name + "ssm_dt.bias", (ssm_heads,), _PLAIN),
                (name + "ssm_a", (1, ssm_heads), _PLAIN),
                (name + "ssm_d", (1, ssm_heads), _PLAIN),
                (name + "ssm_norm.weight", (inner // groups, groups), _PLAIN),
                (name + "ssm_out.weight", (inner, _EMBD), Q8_0),
            ]
        tensors += _feed_forward(layer)
    return keys, tensors


def qwen35() -> tuple[dict[str, Any], list[Tensor]]:
    """Gated delta nets, and attention in every fourth layer."""
    state, groups, ssm_heads, kernel = 64, 4, 8, 4
    value, key = ssm_heads * state, groups * state
    keys = _common(
        "qwen35", 8,
        **{
            "attention.head_count": (U32, 4), "attention.head_count_kv": (U32, 2),
            "attention.key_length": (U32, 64), "attention.value_length": (U32, 64),
            "rope.dimension_sections": (I32, [8, 12, 12, 0]), "full_attention_interval": (U32, 4),
            "ssm.conv_kernel": (U32, kernel), "ssm.inner_size": (U32, value), "ssm.state_size": (U32, state),
            "ssm.time_step_rank": (U32, ssm_heads), "ssm.group_count": (U32, groups),
        },
    )  # fmt: skip
    tensors = list(_embeddings())
    for layer in range(8):
        name = f"blk.{layer}."
        tensors.append((name + "attn_norm.weight", (_EMBD,), _PLAIN))
        tensors.append((name + "post_attention_norm.weight", (_EMBD,), _PLAIN))
        if layer % 4 == 3:
            tensors += _attention(layer, 2 * 256, 128, 256, head=64)
        else:
            tensors += [
                (name + "attn_qkv.weight", (_EMBD, 2 * key + value), Q8_0),
                (name + "attn_gate.weight", (_EMBD, value), Q8_0),
                (name + "ssm_conv1d.weight", (kernel, 2 * key + value), _PLAIN),
                (name + "ssm_dt.bias", (ssm_heads,), _PLAIN),
                (name + "ssm_a", (ssm_heads,), _PLAIN),
                (name + "ssm_beta.weight", (_EMBD, ssm_heads), Q8_0),
                (name + "ssm_alpha.weight", (_EMBD, ssm_heads), Q8_0),
                (name + "ssm_norm.weight", (state,), _PLAIN),
                (name + "ssm_out.weight", (value, _EMBD), Q8_0),
            ]
        tensors += _feed_forward(layer)
    return keys, tensors


def gemma4() -> tuple[dict[str, Any], list[Tensor]]:
    """Windows and full layers of unequal width; the last layers read the caches of earlier ones."""
    windowed = [True, True, True, False] * 3
    keys = _common(
        "gemma4", 12,
        **{
            "attention.head_count": (U32, 4), "attention.head_count_kv": (I32, [1 if w else 2 for w in windowed]),
            "attention.key_length": (U32, 128), "attention.value_length": (U32, 128),
            "attention.key_length_swa": (U32, 64), "attention.value_length_swa": (U32, 64),
            "attention.sliding_window": (U32, 512), "attention.sliding_window_pattern": (BOOL, windowed),
            "attention.shared_kv_layers": (U32, 4), "embedding_length_per_layer_input": (U32, 32),
        },
    )  # fmt: skip
    tensors = list(_embeddings())
    tensors += [
        ("per_layer_token_embd.weight", (32 * 12, _VOCAB), Q8_0),
        ("per_layer_model_proj.weight", (_EMBD, 32 * 12), Q8_0),
        ("per_layer_proj_norm.weight", (32,), _PLAIN),
        ("rope_freqs.weight", (64,), _PLAIN),
    ]
    for layer, window in enumerate(windowed):
        name, head, heads = f"blk.{layer}.", 64 if window else 128, 1 if window else 2
        norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm")
        tensors += [(f"{name}{norm}.weight", (_EMBD,), _PLAIN) for norm in norms]
        tensors += _attention(layer, 4 * head, heads * head, 4 * head, head=head)
        tensors += _feed_forward(layer)
        tensors.append((name + "inp_gate.weight", (_EMBD, 32), Q8_0))
        tensors.append((name + "proj.weight", (32, _EMBD), Q8_0))
    return keys, tensors


KINDS: tuple[Callable[[], tuple[dict[str, Any], list[Tensor]]], ...] = (granite_hybrid, qwen35, gemma4)


def write_kind(path: Path, kind: Callable[[], tuple[dict[str, Any], list[Tensor]]]) -> Path:
    """A file of zeros behind the header of this kind."""
    keys, tensors = kind()
    infos, offset = [], 0
    for name, dims, number in tensors:
        infos.append(tensor_info(name, dims, number, offset))
        offset += padded(tensor_bytes(dims, number))
    head = header([key_value(key, value) for key, value in keys.items()], infos)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(padded(len(head)) + offset)
    return path
