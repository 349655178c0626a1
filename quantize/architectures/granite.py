"""Granite 3: Llama with four multipliers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from quantize.architectures.llama import Llama
from quantize.metadata import Metadata, f32, u32

_MULTIPLIERS = {
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}


class Granite(Llama):
    name = "granite"
    hf_classes: ClassVar[tuple[str, ...]] = ("GraniteForCausalLM",)
    defaults: ClassVar[Mapping[str, Any]] = {**Llama.defaults, **dict.fromkeys(_MULTIPLIERS, 1.0)}

    def check(self) -> None:
        super().check()
        if self.head_dim * self.n_heads != self.config.integer("hidden_size"):
            raise self.unsupported("head_dim", self.head_dim)

    def parameters(self) -> Metadata:
        keys = self.common_parameters(head_keys=False)
        keys[f"{self.name}.vocab_size"] = u32(self.config.integer("vocab_size"))
        keys[f"{self.name}.rope.dimension_count"] = u32(self.head_dim)
        for setting, key in _MULTIPLIERS.items():
            keys[f"{self.name}.{key}"] = f32(self.config.number(setting))
        return keys
