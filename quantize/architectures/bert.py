"""BERT encoders for embeddings: biases everywhere, learned positions, norms after each part, no causal mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from gguf.constants import PoolingType

from quantize.architectures.architecture import Architecture, Rule
from quantize.checkpoint.config import read_json, read_json_list
from quantize.errors import UnsupportedError
from quantize.metadata import Metadata, boolean, f32, u32

_LAYER, _BLOCK = "encoder.layer.{i}.", "blk.{i}."
_POOLING = {
    "pooling_mode_mean_tokens": PoolingType.MEAN,
    "pooling_mode_cls_token": PoolingType.CLS,
    "pooling_mode_lasttoken": PoolingType.LAST,
}
_POOLING_NAMES = {"mean": PoolingType.MEAN, "cls": PoolingType.CLS, "lasttoken": PoolingType.LAST}


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
        pooling = pooling_of(config.path.parent)
        if pooling is not None:
            keys[f"{name}.pooling_type"] = u32(pooling)
        keys["tokenizer.ggml.token_type_count"] = u32(config.integer("type_vocab_size"))
        return keys


def _both(source: str, target: str, shape: tuple[str, ...]) -> list[Rule]:
    """A weight and its bias, which is as long as the weight has rows."""
    return [
        Rule(source + ".weight", target + ".weight", shape),
        Rule(source + ".bias", target + ".bias", shape[:1]),
    ]


def pooling_of(folder: Path) -> PoolingType | None:
    """How sentence-transformers makes one vector out of many; None when the folder does not say.

    Raises UnsupportedError for a way the engine does not have.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return None
    modules = read_json_list(path)
    where = next((m.get("path") for m in modules if str(m.get("type", "")).endswith("Pooling")), None)
    if not isinstance(where, str):
        return None
    settings = read_json(folder / Path(where).name / "config.json")
    for key, pooling in _POOLING.items():
        if settings.get(key):
            return pooling
    name = settings.get("pooling_mode")
    if name in _POOLING_NAMES:
        return _POOLING_NAMES[name]
    raise UnsupportedError(f"{where}/config.json asks for a pooling that the engine does not have")
