"""Phi 3, 3.5, 4 and 4 mini: fused projections, partial rotation, long-context factors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from quantize.architectures.architecture import Architecture
from quantize.architectures.decoder import BLOCK, LAYER, ends, pre_norms
from quantize.architectures.table import Rule, computed_tensor
from quantize.errors import SourceError
from quantize.metadata import Metadata, f32, u32
from quantize.model import Tensor


class Phi3(Architecture):
    name = "phi3"
    hf_classes: ClassVar[tuple[str, ...]] = ("Phi3ForCausalLM",)
    rope_tensors: ClassVar[tuple[str, ...]] = ("longrope", "su")
    defaults: ClassVar[Mapping[str, Any]] = {
        "max_position_embeddings": 4096,
        "original_max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 1.0,
        "tie_word_embeddings": False,
    }

    def check(self) -> None:
        super().check()
        self.warn_of_window()
        if self.config.get("head_dim") is not None and self.head_dim * self.n_heads != self.config.get("hidden_size"):
            raise self.unsupported("head_dim", self.head_dim)

    @property
    def n_rotated(self) -> int:
        """How many values of a head are rotated."""
        part = self.rope.number("partial_rotary_factor") or self.config.number("partial_rotary_factor")
        return int(part * self.config.integer("hidden_size")) // self.n_heads

    def sizes(self) -> dict[str, int]:
        sizes = super().sizes()
        return {**sizes, "qkv": sizes["q"] + 2 * sizes["kv"], "gate_up": 2 * sizes["ff"]}

    def rules(self) -> Sequence[Rule]:
        return [
            *ends(tied=self.tied),
            *pre_norms(),
            Rule(LAYER + "self_attn.qkv_proj.weight", BLOCK + "attn_qkv.weight", ("qkv", "embd")),
            Rule(LAYER + "self_attn.o_proj.weight", BLOCK + "attn_output.weight", ("embd", "q")),
            Rule(LAYER + "mlp.gate_up_proj.weight", BLOCK + "ffn_up.weight", ("gate_up", "embd")),
            Rule(LAYER + "mlp.down_proj.weight", BLOCK + "ffn_down.weight", ("embd", "ff")),
        ]

    @property
    def _trained_context(self) -> int:
        given = self.rope.number("original_max_position_embeddings")
        return int(given) if given is not None else self.config.integer("original_max_position_embeddings")

    def parameters(self) -> Metadata:
        name = self.name
        keys = self.common_parameters(head_keys=False)
        keys[f"{name}.rope.scaling.original_context_length"] = u32(self._trained_context)
        keys[f"{name}.rope.dimension_count"] = u32(self.n_rotated)
        window = self.config.get("sliding_window")
        keys[f"{name}.attention.sliding_window"] = u32(0 if window is None else self.config.integer("sliding_window"))
        if self._factors("long_factor") is not None:
            keys[f"{name}.rope.scaling.attn_factor"] = f32(self._attention_factor())
        return keys

    def extra_tensors(self) -> list[Tensor]:
        tensors = []
        for kind in ("long", "short"):
            factors = self._factors(f"{kind}_factor")
            if factors is not None:
                tensors.append(computed_tensor(f"rope_factors_{kind}.weight", np.array(factors, dtype=np.float32)))
        return tensors

    def _factors(self, key: str) -> list[float] | None:
        """Long or short factors. Raises SourceError when there are not as many as pairs that are rotated."""
        factors = self.rope.values.get(key)
        if factors is None:
            return None
        numbers = isinstance(factors, list) and all(isinstance(f, int | float) and math.isfinite(f) for f in factors)
        if not numbers or len(factors) != self.n_rotated // 2:
            raise SourceError(f"config.json has a {key} that is no list of {self.n_rotated // 2} numbers")
        return [float(f) for f in factors]

    def _attention_factor(self) -> float:
        """How much longer contexts sharpen attention, as in the `longrope` and `yarn` scalings of transformers."""
        scale = self.config.integer("max_position_embeddings") / self._trained_context
        if scale <= 1.0:
            return 1.0
        if self.rope.kind == "yarn":
            return 0.1 * math.log(scale) + 1.0
        return math.sqrt(1 + math.log(scale) / math.log(self._trained_context))
