"""llama.cpp's named mixes: the type of a tensor from its name, its position and the model's kind.

A re-statement of `llama_tensor_get_type_impl` (llama-quant.cpp) that is compared with the library itself in the tests.
Knows no sizes: rows that a type does not divide are `fallback`'s. Invariant: tensors are shown in llama.cpp's order
(by layer, then by name), because the rules count what they have seen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from quantize.errors import SourceError
from quantize.model import Tensor
from quantize.recipe.facts import Facts, Part, layer_of, part_of
from quantize.types import FLOAT_TYPES, NamedMix

T = GGMLQuantizationType

_VERY_LOW = frozenset({"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m"})
_IQ2_S_OR_M = frozenset({"iq2_s", "iq2_m"})
_EIGHT_EXPERT_OUTPUT = frozenset(
    ["q2_k", "iq3_xs", "iq3_xxs", "q3_k_s", "q3_k_m", "iq4_nl", "q4_k_s", "q4_k_m", "iq3_s", "iq3_m", "iq4_xs"]
)


def use_more_bits(i: int, n: int) -> bool:
    """The layers that matter most: the first and last eighth, and every third between."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


@dataclass(slots=True)
class MixRules:
    """The rules of one mix for one model. Stateful: call `choose` once for each quantizable tensor, in order."""

    mix: NamedMix
    facts: Facts
    n_value_like: int
    """Tensors of attention values in the model."""
    has_matrix: bool
    _seen: Counter[str] = field(default_factory=Counter)

    def choose(self, tensor: Tensor) -> GGMLQuantizationType:
        """The type for the next tensor."""
        part, facts, name, base = part_of(tensor.name), self.facts, self.mix.name, self.mix.base
        if (
            facts.architecture == "glm5-next"
            and any(text in tensor.name for text in ("attn_q_a", "attn_q_b", "nextn.eh_proj"))
            and base not in FLOAT_TYPES
        ):
            return T.Q8_0
        if self.is_head(part):
            return self._head(tensor)
        if name == "mxfp4_moe":
            return T.MXFP4 if self._is_expert_stack(tensor, part) else T.Q8_0
        if part is Part.TOKEN_EMBEDDING:
            return self._embedding()
        if name in _VERY_LOW:
            return self._very_low(part)
        if part.is_value_like:
            return self._value(part)
        if part in {Part.ATTENTION_K, Part.ATTENTION_Q}:
            return self._query_or_key(part)
        if part is Part.FFN_DOWN:
            return self._down(tensor.name)
        if part is Part.ATTENTION_OUTPUT:
            return self._attention_output()
        if part in {Part.FFN_GATE, Part.FFN_UP}:
            return self._gate_or_up(part, tensor.name)
        return base

    def _count(self, what: str) -> int:
        """How many of these came before this one."""
        self._seen[what] += 1
        return self._seen[what] - 1

    def _layer(self, what: str, name: str) -> int:
        """The position that the feed-forward rules go by: a count, or the layer in the name where experts are apart."""
        position = self._count(what)
        if self.facts.n_expert <= 1:
            return position
        layer = layer_of(name)
        if layer is None or layer >= self.facts.n_layer:
            raise SourceError(f"tensor {name} is in no layer of a model of {self.facts.n_layer} layers")
        return layer

    def _is_expert_stack(self, tensor: Tensor, part: Part) -> bool:
        stacked = len(tensor.shape) > 2 and tensor.shape[-3] > 1
        if self.facts.architecture == "bailingmoe3":
            return stacked and part in {Part.FFN_UP, Part.FFN_GATE, Part.FFN_DOWN}
        return stacked

    def is_head(self, part: Part) -> bool:
        """Whether this tensor computes the logits."""
        return part is Part.OUTPUT or (part is Part.TOKEN_EMBEDDING and self.facts.tied_output)

    def _head(self, tensor: Tensor) -> GGMLQuantizationType:
        return T.Q8_0 if tensor.n_cols % GGML_QUANT_SIZES[self.mix.base][0] else self.wanted_head()

    def wanted_head(self) -> GGMLQuantizationType:
        """The output head's type where its rows are whole blocks of the mix's base type."""
        base, name = self.mix.base, self.mix.name
        if name == "mxfp4_moe" or self.facts.architecture == "falcon":
            return T.Q8_0
        if name in _VERY_LOW or name == "iq3_xxs":
            return T.Q5_K
        return T.Q8_0 if base == T.Q8_0 else T.Q6_K

    def _embedding(self) -> GGMLQuantizationType:
        name = self.mix.name
        if name in {"iq2_xxs", "iq2_xs", "iq1_s", "iq1_m"}:
            return T.Q2_K
        if name in {"iq2_s", "iq2_m", "iq3_xxs"}:
            return T.IQ3_S
        return T.Q4_K if name in {"tq1_0", "tq2_0"} else self.mix.base

    def _very_low(self, part: Part) -> GGMLQuantizationType:
        facts, name, base = self.facts, self.mix.name, self.mix.base
        low = T.IQ3_S if name in _IQ2_S_OR_M else T.Q2_K
        if part.is_value_like:
            return T.Q4_K if facts.heads_per_kv >= 4 or facts.n_expert >= 4 else low
        if part is Part.ATTENTION_K and facts.n_expert == 8:
            return T.Q4_K
        if part is Part.FFN_DOWN:
            return low if self._count("down") < facts.n_layer // 8 else base
        if part is Part.ATTENTION_OUTPUT:
            if facts.n_expert == 8:
                return T.Q5_K
            if name in {"iq1_s", "iq1_m"}:
                return T.IQ2_XXS
            return T.IQ3_S if name in _IQ2_S_OR_M else base
        return base

    def _value(self, part: Part) -> GGMLQuantizationType:
        i = self._count("value")
        kind = self._value_by_mix(i)
        if self.facts.is_70b and kind in {T.Q3_K, T.Q4_K}:
            kind = T.Q5_K
        return T.Q8_0 if self.facts.n_expert == 8 else kind

    def _value_by_mix(self, i: int) -> GGMLQuantizationType:
        name, base = self.mix.name, self.mix.base
        grouped = self.facts.heads_per_kv >= 4
        if name == "q2_k":
            return T.Q4_K if grouped else T.Q3_K
        if name == "q2_k_s" or name in {"iq3_xs", "iq3_s"}:
            return T.Q4_K if grouped else base
        if name == "iq3_xxs":
            if grouped:
                return T.Q4_K
            return T.IQ3_XXS if self.has_matrix else T.IQ3_S
        if name == "iq3_m":
            return T.Q4_K
        if name == "q3_k_m":
            return T.Q5_K if i < 2 else T.Q4_K
        if name == "q3_k_l":
            return T.Q5_K
        if name in {"iq4_nl", "iq4_xs"}:
            return T.Q5_K if grouped else base
        if name in {"q4_k_m", "q5_k_m"}:
            return T.Q6_K if use_more_bits(i, self.n_value_like) else base
        return T.Q5_K if name == "q4_k_s" and i < 4 else base

    def _query_or_key(self, part: Part) -> GGMLQuantizationType:
        if part is Part.ATTENTION_K and self.facts.n_expert == 8:
            return T.Q8_0
        return {"iq3_xs": T.IQ3_XXS, "iq3_xxs": T.IQ2_S}.get(self.mix.name, self.mix.base)

    def _down(self, tensor_name: str) -> GGMLQuantizationType:
        name, base, n = self.mix.name, self.mix.base, self.facts.n_layer
        i = self._layer("down", tensor_name)
        falcon = self.facts.architecture == "falcon"
        first, more = i < n // 8, use_more_bits(i, n)
        if name == "q2_k":
            return T.Q3_K
        if name == "q2_k_s":
            return T.Q4_K if first else base
        if name == "iq3_xxs" and not self.has_matrix:
            return T.Q4_K if first else T.Q3_K
        if name == "q3_k_m":
            if i < n // 16:
                return T.Q5_K
            return T.Q4_K if not falcon or more else T.Q3_K
        if name == "iq3_m" and (first or (self.facts.n_expert == 8 and more)):
            return T.Q4_K
        if name == "q3_k_l":
            return T.Q4_K if falcon else T.Q5_K
        if name == "q4_k_m":
            if falcon:
                return T.Q6_K if i < n // 16 else T.Q5_K if more else base
            return T.Q6_K if more else base
        if name in {"iq4_nl", "iq4_xs"}:
            return T.Q5_K if first and not self.has_matrix else base
        if name == "q5_k_m":
            return T.Q6_K if more else base
        if name == "q4_k_s":
            return T.Q5_K if first and not falcon else base
        if name in {"q4_0", "q5_0"} and self.has_matrix and first:
            return T.Q4_1 if name == "q4_0" else T.Q5_1
        return base

    def _attention_output(self) -> GGMLQuantizationType:
        name, base = self.mix.name, self.mix.base
        if self.facts.architecture == "falcon":
            return T.Q4_K if name == "q3_k_l" else base
        if self.facts.n_expert == 8:
            return T.Q5_K if name in _EIGHT_EXPERT_OUTPUT else base
        return {"q2_k": T.Q3_K, "iq3_xxs": T.IQ3_S, "q3_k_m": T.Q4_K, "q3_k_l": T.Q5_K, "iq3_m": T.Q4_K}.get(name, base)

    def _gate_or_up(self, part: Part, tensor_name: str) -> GGMLQuantizationType:
        n, i = self.facts.n_layer, self._layer(part.value, tensor_name)
        if self.mix.name == "iq3_xs" and n // 8 <= i < 7 * n // 8:
            return T.IQ3_XXS
        return self.mix.base
