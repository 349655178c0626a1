"""What the mixes need to know of a model: its kind, layers, heads and experts, and each tensor's part in it.

Knows GGUF names and keys; no types. Invariant: everything comes from metadata and names, never from weights.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass

from quantize.model import Model, Tensor


class Part(enum.Enum):
    """The part a tensor plays, as far as the mixes tell parts apart."""

    TOKEN_EMBEDDING = "token_embd"
    OUTPUT = "output"
    ATTENTION_Q = "attn_q"
    ATTENTION_K = "attn_k"
    ATTENTION_V = "attn_v"
    ATTENTION_QKV = "attn_qkv"
    ATTENTION_KV_B = "attn_kv_b"
    ATTENTION_OUTPUT = "attn_output"
    FFN_UP = "ffn_up"
    FFN_GATE = "ffn_gate"
    FFN_DOWN = "ffn_down"
    OTHER = "other"

    @property
    def is_value_like(self) -> bool:
        """Attention values, alone or fused: what suffers most from coarse types."""
        return self in {Part.ATTENTION_V, Part.ATTENTION_QKV, Part.ATTENTION_KV_B}


# In this order: the first part whose text occurs in the name (llama-quant.cpp, tensor_get_category).
_BY_TEXT = (
    ("attn_qkv.weight", Part.ATTENTION_QKV),
    ("attn_kv_b.weight", Part.ATTENTION_KV_B),
    ("attn_v.weight", Part.ATTENTION_V),
    ("attn_k.weight", Part.ATTENTION_K),
    ("attn_q.weight", Part.ATTENTION_Q),
    ("attn_output.weight", Part.ATTENTION_OUTPUT),
    ("ffn_up", Part.FFN_UP),
    ("ffn_gate", Part.FFN_GATE),
    ("ffn_down", Part.FFN_DOWN),
)

_NEVER = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
    "time_mix_first.weight",
    *(f"time_mix_{part}.weight" for part in ("w0", "w1", "w2", "v0", "v1", "v2", "a0", "a1", "a2", "g1", "g2")),
    *(f"time_mix_{part}.weight" for part in ("decay_w1", "decay_w2", "lerp_fused")),
)
"""Texts in names of matrices that stay as they are: small, or read by kernels that want floats."""

_NEVER_WHOLE = frozenset({"position_embd.weight", "token_types.weight"})

_NEVER_OF = {
    "glm5-next": (
        "hc_",
        "indexer.attn_q_b",
        "indexer.attn_k",
        "indexer.proj",
        "indexer_compressor_gate",
        "indexer_compressor_ape",
        *(f"ssm_{part}.weight" for part in ("f_a", "f_b", "g_a", "g_b", "beta")),
        "attn_kv_a_mqa.weight",
        "attn_k_b.weight",
        "attn_v_b.weight",
    )
}
"""The same for one architecture."""

_LAYERS_OF_70B = {"llama": 80, "deci": 80, "qwen2": 80, "olmo": 80, "jais2": 68}
"""Layers by which llama.cpp recognizes a 70B model, whose few value heads get more bits."""

_LAYER = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Facts:
    """The model as the mixes see it."""

    architecture: str
    n_layer: int
    n_head: int
    n_head_kv: int
    n_expert: int
    tied_output: bool

    @property
    def heads_per_kv(self) -> int:
        """Query heads that share one key-value head; 0 where the first layer has none."""
        return self.n_head // self.n_head_kv if self.n_head_kv else 0

    @property
    def is_70b(self) -> bool:
        if _LAYERS_OF_70B.get(self.architecture) != self.n_layer:
            return False
        return self.architecture != "llama" or self.n_head != self.n_head_kv

    @classmethod
    def of(cls, model: Model) -> Facts:
        heads = _first_int(model, "attention.head_count", 1)
        return cls(
            architecture=model.architecture,
            n_layer=_first_int(model, "block_count", 0),
            n_head=heads,
            n_head_kv=_first_int(model, "attention.head_count_kv", heads),
            n_expert=_first_int(model, "expert_count", 0),
            tied_output=all(tensor.name != "output.weight" for tensor in model.tensors),
        )


def _first_int(model: Model, key: str, default: int) -> int:
    entry = model.metadata.get(f"{model.architecture}.{key}")
    if entry is None:
        return default
    value = entry.value
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        value = next(iter(value), default)
    return int(value)  # type: ignore[call-overload, no-any-return]  # a number by the GGUF type of its key


def part_of(name: str) -> Part:
    if name == "output.weight":
        return Part.OUTPUT
    if name in {"token_embd.weight", "per_layer_token_embd.weight"}:
        return Part.TOKEN_EMBEDDING
    return next((part for text, part in _BY_TEXT if text in name), Part.OTHER)


def layer_of(name: str) -> int | None:
    """The layer in a tensor's name, None for the tensors outside of layers."""
    found = _LAYER.match(name)
    return int(found[1]) if found else None


def is_quantizable(tensor: Tensor, architecture: str) -> bool:
    """Whether the mixes may touch a tensor (`tensor_allows_quantization`)."""
    name = tensor.name
    if len(tensor.shape) < 2 or tensor.keep_type is not None:
        return False
    # ggml does not count leading axes of one element: a matrix of one row is a vector to it.
    if tensor.n_rows == 1 or not name.endswith("weight") or name in _NEVER_WHOLE:
        return False
    return not any(text in name for text in (*_NEVER, *_NEVER_OF.get(architecture, ())))
