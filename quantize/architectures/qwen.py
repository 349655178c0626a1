"""Qwen 2 and 2.5, Qwen 3, Qwen 3 mixture of experts, and distillations into them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from quantize.architectures.architecture import Architecture
from quantize.architectures.decoder import BLOCK, LAYER, attention, ends, feed_forward, head_norms, pre_norms
from quantize.architectures.table import Rule
from quantize.checkpoint.folder import Checkpoint
from quantize.checkpoint.weight import Weight, rows_within_experts, stack
from quantize.errors import SourceError
from quantize.metadata import Metadata, u32


class Qwen2(Architecture):
    name = "qwen2"
    hf_classes: ClassVar[tuple[str, ...]] = ("Qwen2ForCausalLM", "Qwen2Model")
    defaults: ClassVar[Mapping[str, Any]] = {
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    }

    def check(self) -> None:
        super().check()
        if self.config.flag("use_sliding_window"):
            self.warnings.append("the engine does not apply this model's attention window: long answers may differ")

    def rules(self) -> Sequence[Rule]:
        return [*ends(tied=self.tied), *pre_norms(), *attention(), *feed_forward()]

    def parameters(self) -> Metadata:
        keys = self.common_parameters(head_keys=self.config.get("head_dim") is not None)
        return {**keys, **self.pooling_parameters()}


class Qwen3(Qwen2):
    name = "qwen3"
    hf_classes: ClassVar[tuple[str, ...]] = ("Qwen3ForCausalLM", "Qwen3Model")
    defaults: ClassVar[Mapping[str, Any]] = {**Qwen2.defaults, "head_dim": 128}

    def rules(self) -> Sequence[Rule]:
        return [*super().rules(), *head_norms()]


_EXPERT = re.compile(r"(model\.layers\.\d+\.mlp\.experts)\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight")
_FUSED = re.compile(r"(model\.layers\.\d+\.mlp\.experts)\.gate_up_proj(\.weight)?")


class Qwen3Moe(Qwen3):
    name = "qwen3moe"
    hf_classes: ClassVar[tuple[str, ...]] = ("Qwen3MoeForCausalLM",)
    defaults: ClassVar[Mapping[str, Any]] = {
        **Qwen2.defaults,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 768,
        "num_experts_per_tok": 8,
        "norm_topk_prob": False,
        "decoder_sparse_step": 1,
        "mlp_only_layers": (),
    }

    def check(self) -> None:
        super().check()
        if not self.config.flag("norm_topk_prob"):
            raise self.unsupported("norm_topk_prob", False)
        if self.config.get("mlp_only_layers") or self.config.get("decoder_sparse_step") != 1:
            raise self.unsupported("mlp_only_layers", self.config.get("mlp_only_layers"))

    @property
    def n_experts(self) -> int:
        return self.config.integer("num_experts", "num_local_experts")

    def sizes(self) -> dict[str, int]:
        return {
            **super().sizes(),
            "experts": self.n_experts,
            "expert_ff": self.config.integer("moe_intermediate_size"),
        }

    def rules(self) -> Sequence[Rule]:
        source, target = LAYER + "mlp.", BLOCK + "ffn_"
        return [
            *ends(tied=self.tied),
            *pre_norms(),
            *attention(),
            *head_norms(),
            Rule(source + "gate.weight", target + "gate_inp.weight", ("experts", "embd")),
            Rule(source + "experts.gate_proj.weight", target + "gate_exps.weight", ("experts", "expert_ff", "embd")),
            Rule(source + "experts.up_proj.weight", target + "up_exps.weight", ("experts", "expert_ff", "embd")),
            Rule(source + "experts.down_proj.weight", target + "down_exps.weight", ("experts", "embd", "expert_ff")),
        ]

    def gathered(self, weights: dict[str, Weight], checkpoint: Checkpoint) -> dict[str, Weight]:
        return stacked_experts(split_fused(weights), self.n_experts)

    def parameters(self) -> Metadata:
        name, config = self.name, self.config
        return {
            **super().parameters(),
            f"{name}.expert_count": u32(self.n_experts),
            f"{name}.expert_used_count": u32(config.integer("num_experts_per_tok")),
            f"{name}.expert_feed_forward_length": u32(config.integer("moe_intermediate_size")),
        }


def stacked_experts(weights: Mapping[str, Weight], n_experts: int) -> dict[str, Weight]:
    """Join the experts of a layer; the result stands where the last of them stood.

    Raises SourceError with the name when an expert is missing.
    """
    found: dict[str, dict[int, Weight]] = defaultdict(dict)
    result: dict[str, Weight] = {}
    complete: dict[str, list[str]] = defaultdict(list)
    for name, weight in weights.items():
        match = _EXPERT.fullmatch(name)
        if match is None:
            result[name] = weight
            continue
        layer, number, kind = match[1], int(match[2]), match[3]
        joined = f"{layer}.{kind}.weight"
        found[joined][number] = weight
        if len(found[joined]) == n_experts:
            complete[layer].append(joined)
        if len(complete[layer]) == 3:
            for each in sorted(complete.pop(layer)):
                experts = found.pop(each)
                result[each] = stack([experts[i] for i in _numbers(experts, n_experts, each)], each)
    for joined, experts in found.items():
        missing = [str(i) for i in range(n_experts) if i not in experts]
        if missing:
            raise SourceError(f"{joined}: experts {', '.join(missing[:5])} are missing")
    if found:
        raise SourceError(f"the layers of {', '.join(found)} have not all three kinds of experts")
    return result


def _numbers(experts: Mapping[int, Weight], n_experts: int, name: str) -> range:
    if set(experts) != set(range(n_experts)):
        raise SourceError(f"{name}: experts are numbered {sorted(experts)[:5]}…, expected 0 to {n_experts - 1}")
    return range(n_experts)


def split_fused(weights: Mapping[str, Weight]) -> dict[str, Weight]:
    """Halve fused gate-and-up tensors, and give experts that are stacked already the table's names."""
    result: dict[str, Weight] = {}
    for name, weight in weights.items():
        fused = _FUSED.fullmatch(name)
        if fused is not None and len(weight.shape) == 3:
            half = weight.shape[1] // 2
            result[f"{fused[1]}.gate_proj.weight"] = rows_within_experts(weight, 0, 1, half)
            result[f"{fused[1]}.up_proj.weight"] = rows_within_experts(weight, half, 1, half)
        elif name.endswith(".mlp.experts.down_proj"):
            result[f"{name}.weight"] = weight
        else:
            result[name] = weight
    return result
