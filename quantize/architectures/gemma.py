"""Gemma 2 and the text part of Gemma 3.

Norms are stored as their distance from one; the head is always the embedding. Some settings are constants in the
engine, so they are checked here rather than written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from quantize.architectures.architecture import Architecture
from quantize.architectures.decoder import BLOCK, LAYER, attention, ends, feed_forward, head_norms
from quantize.architectures.table import Rule
from quantize.checkpoint.folder import Checkpoint
from quantize.checkpoint.weight import Weight, plus_one, row_range
from quantize.metadata import Metadata, booleans, f32, u32


class Gemma2(Architecture):
    name = "gemma2"
    hf_classes: ClassVar[tuple[str, ...]] = ("Gemma2ForCausalLM",)
    activations: ClassVar[tuple[str, ...]] = ("gelu_pytorch_tanh",)
    ignored: ClassVar[tuple[str, ...]] = (r"lm_head\.weight",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    }
    window_period: ClassVar[int] = 2
    """The engine gives every layer a window but each of this many, unless the file says otherwise."""
    layers_of_27b: ClassVar[int] = 46
    """With this many layers the engine scales attention by hidden size over heads, else by the head's width."""

    def check(self) -> None:
        super().check()
        scale = self.config.number("query_pre_attn_scalar")
        large = self.n_layers == self.layers_of_27b
        expected = self.config.integer("hidden_size") // self.n_heads if large else self.head_dim
        if not math.isclose(scale, expected):
            raise self.unsupported("query_pre_attn_scalar", scale)

    @property
    def tied(self) -> bool:
        return True

    def rules(self) -> Sequence[Rule]:
        feed = "feedforward_layernorm.weight"
        return [
            *ends(tied=True, norm=plus_one),
            *attention(),
            *feed_forward(),
            Rule(LAYER + "input_layernorm.weight", BLOCK + "attn_norm.weight", ("embd",), plus_one),
            Rule(LAYER + "post_attention_layernorm.weight", BLOCK + "post_attention_norm.weight", ("embd",), plus_one),
            Rule(LAYER + f"pre_{feed}", BLOCK + "ffn_norm.weight", ("embd",), plus_one),
            Rule(LAYER + f"post_{feed}", BLOCK + "post_ffw_norm.weight", ("embd",), plus_one),
        ]

    def parameters(self) -> Metadata:
        config, name = self.config, self.name
        keys = self.common_parameters()
        keys.pop(f"{name}.rope.freq_base", None)  # 10000 is the engine's constant for this model
        if self.rope.theta != 10000.0:
            keys[f"{name}.rope.freq_base"] = f32(config.number("rope_theta"))
        keys[f"{name}.attn_logit_softcapping"] = f32(config.number("attn_logit_softcapping"))
        keys[f"{name}.final_logit_softcapping"] = f32(config.number("final_logit_softcapping"))
        keys[f"{name}.attention.sliding_window"] = u32(config.integer("sliding_window"))
        return {**keys, **self.window_pattern()}

    def window_pattern(self) -> Metadata:
        """Which layers have a window, where it is not what the engine assumes."""
        listed = self.sliding_layers
        period = self.config.get("sliding_window_pattern", "_sliding_window_pattern")
        if listed is None and isinstance(period, int) and period > 0:
            listed = [(i + 1) % period != 0 for i in range(self.n_layers)]
        assumed = [i % self.window_period < self.window_period - 1 for i in range(self.n_layers)]
        if listed is None or listed == assumed:
            return {}
        return {f"{self.name}.attention.sliding_window_pattern": booleans(listed)}


class Gemma3(Gemma2):
    name = "gemma3"
    hf_classes: ClassVar[tuple[str, ...]] = ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")
    ignored: ClassVar[tuple[str, ...]] = (r"lm_head\.weight", r".*(vision_tower|multi_modal_projector)\..*")
    defaults: ClassVar[Mapping[str, Any]] = {
        **Gemma2.defaults,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10000.0,
        "final_logit_softcapping": None,
        "attn_logit_softcapping": None,
    }
    window_period = 6
    layers_of_27b = 62

    def check(self) -> None:
        super().check()
        if self.config.get("attn_logit_softcapping") is not None:
            raise self.unsupported("attn_logit_softcapping", self.config.get("attn_logit_softcapping"))

    def rules(self) -> Sequence[Rule]:
        return [*super().rules(), *head_norms(norm=plus_one)]

    def gathered(self, weights: dict[str, Weight], checkpoint: Checkpoint) -> dict[str, Weight]:
        """Cut embedding rows beyond the vocabulary: some checkpoints have a few for images."""
        embedding, n_tokens = weights.get("model.embed_tokens.weight"), self.config.integer("vocab_size")
        if embedding is None or embedding.shape[0] <= n_tokens:
            return weights
        self.warnings.append(f"{embedding.shape[0] - n_tokens} embedding rows beyond the vocabulary were left out")
        return {**weights, "model.embed_tokens.weight": row_range(embedding, 0, n_tokens)}

    def parameters(self) -> Metadata:
        config, name = self.config, self.name
        keys = self.common_parameters()
        if config.get("final_logit_softcapping") is not None:
            keys[f"{name}.final_logit_softcapping"] = f32(config.number("final_logit_softcapping"))
        keys[f"{name}.attention.sliding_window"] = u32(config.integer("sliding_window"))
        return {**keys, **self.window_pattern()}
