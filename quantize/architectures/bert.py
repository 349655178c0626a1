"""BERT encoders for embeddings: biases everywhere, learned positions, norms after each part, no causal mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from quantize.architectures.architecture import Architecture
from quantize.architectures.table import Rule
from quantize.metadata import Metadata, boolean, f32, u32

_LAYER, _BLOCK = "encoder.layer.{i}.", "blk.{i}."


class Bert(Architecture):
    name = "bert"
    hf_classes: ClassVar[tuple[str, ...]] = ("BertModel", "BertForMaskedLM")
    activations: ClassVar[tuple[str, ...]] = ("gelu",)
    ignored: ClassVar[tuple[str, ...]] = (
        r"embeddings\.position_ids",
        r"pooler\.dense\.(weight|bias)",
        r"cls\.(predictions|seq_relationship)\..*",
    )
    defaults: ClassVar[Mapping[str, Any]] = {
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
    }

    def check(self) -> None:
        super().check()
        kind = self.config.get("position_embedding_type")
        if kind not in (None, "absolute"):
            raise self.unsupported("position_embedding_type", kind)

    @property
    def tied(self) -> bool:
        return False

    def tensor_name(self, name: str) -> str:
        """Without the wrapper's prefix; old checkpoints call a norm's weight gamma and its bias beta."""
        name = name.removeprefix("model.").removeprefix("bert.")
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return name

    def sizes(self) -> dict[str, int]:
        return {
            **super().sizes(),
            "positions": self.config.integer("max_position_embeddings"),
            "types": self.config.integer("type_vocab_size"),
        }

    def rules(self) -> Sequence[Rule]:
        embeddings = "embeddings."
        rules = [
            Rule(embeddings + "word_embeddings.weight", "token_embd.weight", ("vocab", "embd")),
            Rule(embeddings + "position_embeddings.weight", "position_embd.weight", ("positions", "embd")),
            Rule(embeddings + "token_type_embeddings.weight", "token_types.weight", ("types", "embd")),
            *_both(embeddings + "LayerNorm", "token_embd_norm", ("embd",)),
        ]
        attention = _LAYER + "attention."
        rules += _both(attention + "self.query", _BLOCK + "attn_q", ("q", "embd"))
        rules += _both(attention + "self.key", _BLOCK + "attn_k", ("kv", "embd"))
        rules += _both(attention + "self.value", _BLOCK + "attn_v", ("kv", "embd"))
        rules += _both(attention + "output.dense", _BLOCK + "attn_output", ("embd", "q"))
        rules += _both(attention + "output.LayerNorm", _BLOCK + "attn_output_norm", ("embd",))
        rules += _both(_LAYER + "intermediate.dense", _BLOCK + "ffn_up", ("ff", "embd"))
        rules += _both(_LAYER + "output.dense", _BLOCK + "ffn_down", ("embd", "ff"))
        rules += _both(_LAYER + "output.LayerNorm", _BLOCK + "layer_output_norm", ("embd",))
        return rules

    def parameters(self) -> Metadata:
        name, config = self.name, self.config
        keys = {
            f"{name}.block_count": u32(self.n_layers),
            f"{name}.context_length": u32(config.integer("max_position_embeddings")),
            f"{name}.embedding_length": u32(config.integer("hidden_size")),
            f"{name}.feed_forward_length": u32(config.integer("intermediate_size")),
            f"{name}.attention.head_count": u32(self.n_heads),
            f"{name}.attention.layer_norm_epsilon": f32(config.number("layer_norm_eps")),
            f"{name}.attention.causal": boolean(False),
        }
        keys |= self.pooling_parameters()
        keys["tokenizer.ggml.token_type_count"] = u32(config.integer("type_vocab_size"))
        return keys


def _both(source: str, target: str, shape: tuple[str, ...]) -> list[Rule]:
    """A weight and its bias, which is as long as the weight has rows."""
    return [
        Rule(source + ".weight", target + ".weight", shape),
        Rule(source + ".bias", target + ".bias", shape[:1]),
    ]
