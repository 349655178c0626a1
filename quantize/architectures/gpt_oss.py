"""gpt-oss: experts in MXFP4 (repacked without loss) or in BF16, attention sinks, windows in every other layer.

Gate and up rows are interleaved. MXFP4 blocks of 32 values come as 16 bytes with neighbours in a byte, and go out as
ggml's `block_mxfp4`: the scale's byte, then 16 bytes with values j and j + 16 in a byte.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from quantize.architectures.architecture import Architecture
from quantize.architectures.decoder import BLOCK, LAYER, attention, ends
from quantize.architectures.table import Rule
from quantize.checkpoint.folder import Checkpoint
from quantize.checkpoint.safetensors import StoredTensor
from quantize.checkpoint.weight import Bytes, Weight, rows_within_experts, transpose_experts
from quantize.errors import SourceError
from quantize.metadata import Metadata, booleans, u32
from quantize.model import Rows

_BLOCK = 32
_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
"""What the 16 codes of an E2M1 number stand for (OCP Microscaling Formats 1.0)."""
_MXFP4 = re.compile(r"(model\.layers\.\d+\.mlp\.experts)\.(gate_up_proj|down_proj)_blocks")


class GptOss(Architecture):
    name = "gpt-oss"
    hf_classes: ClassVar[tuple[str, ...]] = ("GptOssForCausalLM",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "head_dim": 64,
        "num_key_value_heads": 8,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "rope_theta": 150000.0,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
        },
        "tie_word_embeddings": False,
    }  # fmt: skip

    ignored: ClassVar[tuple[str, ...]] = (r"model\.layers\.\d+\.mlp\.experts\.(gate_up|down)_proj_(blocks|scales)",)
    """Read from the checkpoint by `repacked_experts`, not as weights."""

    def check(self) -> None:
        super().check()
        if self.tied:
            raise self.unsupported("tie_word_embeddings", True)
        for key, constant in (("swiglu_alpha", 1.702), ("swiglu_limit", 7.0)):
            if self.config.get(key) not in (None, constant):
                raise self.unsupported(key, self.config.get(key))

    @property
    def n_experts(self) -> int:
        return self.config.integer("num_local_experts", "num_experts")

    def sizes(self) -> dict[str, int]:
        return {**super().sizes(), "experts": self.n_experts, "heads": self.n_heads}

    def rules(self) -> Sequence[Rule]:
        source, target = LAYER + "mlp.", BLOCK + "ffn_"
        wide, narrow = ("experts", "ff", "embd"), ("experts", "embd", "ff")
        return [
            *ends(tied=False),
            *attention(output_bias=True),
            Rule(LAYER + "self_attn.sinks", BLOCK + "attn_sinks.weight", ("heads",)),
            Rule(LAYER + "input_layernorm.weight", BLOCK + "attn_norm.weight", ("embd",)),
            Rule(LAYER + "post_attention_layernorm.weight", BLOCK + "post_attention_norm.weight", ("embd",)),
            Rule(source + "router.weight", target + "gate_inp.weight", ("experts", "embd")),
            Rule(source + "router.bias", target + "gate_inp.bias", ("experts",)),
            Rule(source + "experts.gate_proj", target + "gate_exps.weight", wide),
            Rule(source + "experts.up_proj", target + "up_exps.weight", wide),
            Rule(source + "experts.down_proj", target + "down_exps.weight", narrow),
            Rule(source + "experts.gate_proj_bias", target + "gate_exps.bias", ("experts", "ff")),
            Rule(source + "experts.up_proj_bias", target + "up_exps.bias", ("experts", "ff")),
            Rule(source + "experts.down_proj_bias", target + "down_exps.bias", ("experts", "embd")),
        ]

    def gathered(self, weights: dict[str, Weight], checkpoint: Checkpoint) -> dict[str, Weight]:
        """Experts as gate, up and down, whether they are stored in MXFP4 or not."""
        result = repacked_experts(checkpoint)
        for name, weight in weights.items():
            if name.endswith(".experts.gate_up_proj"):
                turned = transpose_experts(weight)
                half, prefix = turned.shape[1] // 2, name.removesuffix("gate_up_proj")
                result[f"{prefix}gate_proj"] = rows_within_experts(turned, 0, 2, half)
                result[f"{prefix}up_proj"] = rows_within_experts(turned, 1, 2, half)
            elif name.endswith(".experts.down_proj"):
                result[name] = transpose_experts(weight)
            elif name.endswith(".experts.gate_up_proj_bias"):
                prefix = name.removesuffix("gate_up_proj_bias")
                result[f"{prefix}gate_proj_bias"] = every_other_column(weight, 0)
                result[f"{prefix}up_proj_bias"] = every_other_column(weight, 1)
            else:
                result[name] = weight
        return result

    def parameters(self) -> Metadata:
        name, config = self.name, self.config
        keys = {
            **self.common_parameters(),
            f"{name}.expert_count": u32(self.n_experts),
            f"{name}.expert_used_count": u32(config.integer("num_experts_per_tok", "experts_per_token")),
            f"{name}.attention.sliding_window": u32(config.integer("sliding_window")),
            f"{name}.expert_feed_forward_length": u32(config.integer("intermediate_size")),
        }
        listed = self.sliding_layers
        if listed is not None and listed != [i % 2 == 0 for i in range(self.n_layers)]:
            keys[f"{name}.attention.sliding_window_pattern"] = booleans(listed)
        return keys


def every_other_column(weight: Weight, first: int) -> Weight:
    """Columns `first`, `first` + 2, … of a matrix, in float32."""
    shape = (*weight.shape[:-1], weight.shape[-1] // 2)

    def read(start: int, stop: int) -> Rows:
        return np.ascontiguousarray(weight.read(start, stop)[:, first::2])

    return Weight(weight.label, shape, weight.type, read)


def repacked_experts(checkpoint: Checkpoint) -> dict[str, Weight]:
    """The MXFP4 experts of a checkpoint under the table's names.

    Raises SourceError when blocks and scales do not fit.
    """
    result: dict[str, Weight] = {}
    for name, blocks in checkpoint.tensors.items():
        match = _MXFP4.fullmatch(name)
        if match is None:
            continue
        scales = checkpoint.tensors.get(name.removesuffix("blocks") + "scales")
        if scales is None:
            raise SourceError(f"{name} has no scales beside it")
        if len(blocks.shape) != 4 or blocks.shape[-1] != _BLOCK // 2 or scales.shape != blocks.shape[:-1]:
            raise SourceError(f"{name} of shape {blocks.shape} does not fit its scales of shape {scales.shape}")
        whole = _mxfp4(blocks, scales)
        if match[2] == "down_proj":
            result[f"{match[1]}.down_proj"] = whole
        else:
            half = whole.shape[1] // 2
            result[f"{match[1]}.gate_proj"] = rows_within_experts(whole, 0, 2, half)
            result[f"{match[1]}.up_proj"] = rows_within_experts(whole, 1, 2, half)
    return result


def _mxfp4(blocks: StoredTensor, scales: StoredTensor) -> Weight:
    """One stack of experts.  # (experts, rows, blocks, 16) and (experts, rows, blocks) -> (experts, rows, columns)"""
    n_experts, n_rows, n_blocks, _ = blocks.shape

    def stored(start: int, stop: int) -> Bytes:
        rows = stop - start
        codes = blocks.read(start * n_blocks, stop * n_blocks).reshape(rows, n_blocks, _BLOCK // 2)
        exponents = scales.read(start, stop).reshape(rows, n_blocks, 1)
        return np.concatenate((exponents, _ggml_order(codes)), axis=-1).reshape(rows, -1)

    def read(start: int, stop: int) -> Rows:
        packed = stored(start, stop).reshape(stop - start, n_blocks, 1 + _BLOCK // 2)
        codes = np.concatenate((packed[..., 1:] & 0x0F, packed[..., 1:] >> 4), axis=-1)
        scale = np.ldexp(np.float32(1), packed[..., :1].astype(np.int32) - 127)
        return (_VALUES[codes] * scale).reshape(stop - start, -1)

    label = blocks.name.removesuffix("_blocks")
    return Weight(label, (n_experts, n_rows, n_blocks * _BLOCK), GGMLQuantizationType.MXFP4, read, stored)


def _ggml_order(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """From values (2j, 2j + 1) in byte j to values (j, j + 16) in byte j.  # (rows, blocks, 16)"""
    values = np.stack((codes & 0x0F, codes >> 4), axis=-1).reshape(*codes.shape[:-1], _BLOCK)
    packed: npt.NDArray[np.uint8] = values[..., : _BLOCK // 2] | (values[..., _BLOCK // 2 :] << 4)
    return packed
