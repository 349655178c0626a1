"""SmolLM3: Llama, but every fourth layer does not rotate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from quantize.architectures.llama import Llama

_STEP = 4
"""A constant in the engine: of so many layers the last does not rotate."""


class SmolLM3(Llama):
    name = "smollm3"
    hf_classes: ClassVar[tuple[str, ...]] = ("SmolLM3ForCausalLM",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 2_000_000.0,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "no_rope_layer_interval": _STEP,
        "tie_word_embeddings": True,
    }

    rope_tensors = ()
    states_head_width = False

    def check(self) -> None:
        super().check()
        rotated = self.config.get("no_rope_layers")
        expected = [int((i + 1) % _STEP != 0) for i in range(self.n_layers)]
        if rotated is None and self.config.integer("no_rope_layer_interval") != _STEP:
            raise self.unsupported("no_rope_layer_interval", self.config.get("no_rope_layer_interval"))
        if rotated is not None and [int(bool(r)) for r in rotated] != expected:
            raise self.unsupported("no_rope_layers", rotated)
        if self.config.flag("use_sliding_window"):
            raise self.unsupported("use_sliding_window", True)
