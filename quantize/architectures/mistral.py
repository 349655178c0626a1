"""Mistral 7B and Nemo and what is built on them; the engine runs them as Llama."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from quantize.architectures.llama import Llama


class Mistral(Llama):
    hf_classes: ClassVar[tuple[str, ...]] = ("MistralForCausalLM", "MistralModel")
    defaults: ClassVar[Mapping[str, Any]] = {
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
    }

    def check(self) -> None:
        super().check()
        self.warn_of_window()
