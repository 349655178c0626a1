"""Llama 2 and 3, Mistral 7B and its kin, SmolLM2, TinyLlama, and distillations into them.

The engine rotates neighbouring pairs where Hugging Face rotates halves, so query and key rows are permuted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from quantize.architectures.architecture import Architecture
from quantize.architectures.decoder import attention, ends, feed_forward, pre_norms
from quantize.architectures.rope import llama3_factors
from quantize.architectures.table import Rule, computed_tensor
from quantize.checkpoint.weight import interleave_rotary_halves
from quantize.metadata import Metadata, u32
from quantize.model import Tensor


class Llama(Architecture):
    name = "llama"
    hf_classes: ClassVar[tuple[str, ...]] = ("LlamaForCausalLM", "LLaMAForCausalLM", "LlamaModel")
    defaults: ClassVar[Mapping[str, Any]] = {
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    }

    rope_tensors: ClassVar[tuple[str, ...]] = ("llama3",)
    states_head_width: ClassVar[bool] = True
    """The class always has a width of its heads, given or computed, and the converter writes it."""

    def rules(self) -> Sequence[Rule]:
        query = partial(interleave_rotary_halves, n_head=self.n_heads)
        key = partial(interleave_rotary_halves, n_head=self.n_kv_heads)
        return [
            *ends(tied=self.tied),
            *pre_norms(),
            *attention(query=query, key=key, output_bias=True),
            *feed_forward(bias=True),
        ]

    def parameters(self) -> Metadata:
        return {
            **self.common_parameters(head_keys=self.states_head_width or self.config.get("head_dim") is not None),
            f"{self.name}.vocab_size": u32(self.config.integer("vocab_size")),
            f"{self.name}.rope.dimension_count": u32(self.head_dim),
        }

    def extra_tensors(self) -> list[Tensor]:
        factors = llama3_factors(self.rope, self.head_dim)
        return [] if factors is None else [computed_tensor("rope_freqs.weight", factors)]
