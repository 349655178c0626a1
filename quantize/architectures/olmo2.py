"""OLMo 2: norms after attention and feed-forward instead of before, and over all queries and keys at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from quantize.architectures.architecture import Architecture
from quantize.architectures.decoder import BLOCK, LAYER, attention, ends, feed_forward, head_norms
from quantize.architectures.table import Rule
from quantize.metadata import Metadata


class Olmo2(Architecture):
    name = "olmo2"
    hf_classes: ClassVar[tuple[str, ...]] = ("Olmo2ForCausalLM",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    }

    def check(self) -> None:
        super().check()
        if self.tied:
            raise self.unsupported("tie_word_embeddings", True)
        if self.head_dim * self.n_heads != self.config.integer("hidden_size"):
            raise self.unsupported("head_dim", self.head_dim)

    def rules(self) -> Sequence[Rule]:
        return [
            *ends(tied=False),
            *attention(),
            *head_norms("q", "kv"),
            *feed_forward(),
            Rule(LAYER + "post_attention_layernorm.weight", BLOCK + "post_attention_norm.weight", ("embd",)),
            Rule(LAYER + "post_feedforward_layernorm.weight", BLOCK + "post_ffw_norm.weight", ("embd",)),
        ]

    def parameters(self) -> Metadata:
        return self.common_parameters(head_keys=False)
