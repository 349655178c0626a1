"""What every architecture has: a table from checkpoint names to GGUF names, sizes, parameters, and defaults.

A subclass states its table and overrides what differs. Knows the configuration; reads no weight. Invariant: a
setting that the engine would compute in another way is refused when the architecture is made.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from quantize.architectures.pooling import pooling_of
from quantize.architectures.rope import Rope, rope_metadata, rope_of
from quantize.architectures.table import IGNORED, Rule, matched, plain_names, refuse_left_over
from quantize.checkpoint.config import Config
from quantize.checkpoint.folder import Checkpoint
from quantize.checkpoint.weight import Weight
from quantize.errors import SourceError, UnsupportedError
from quantize.metadata import Metadata, f32, u32
from quantize.model import Tensor


class Architecture(ABC):
    """The base of all architectures; holds the configuration with the class's defaults underneath."""

    name: ClassVar[str]
    """llama.cpp's name, the value of `general.architecture` and the prefix of its keys."""
    hf_classes: ClassVar[tuple[str, ...]]
    defaults: ClassVar[Mapping[str, Any]] = {}
    """What the Hugging Face class assumes for keys that config.json leaves out."""
    ignored: ClassVar[tuple[str, ...]] = ()
    """Patterns (whole names) of tensors that the engine does not need."""

    rope_tensors: ClassVar[tuple[str, ...]] = ()
    """Rope scalings that the engine reads as tensors, which `extra_tensors` computes."""
    activations: ClassVar[tuple[str, ...]] = ("silu", "swish")
    """Names of the activation function that the engine computes for this architecture."""

    def __init__(self, config: Config) -> None:
        self.config = config.with_defaults(self.defaults)
        self.n_layers = self.config.integer("num_hidden_layers")
        self.rope: Rope = rope_of(self.config)
        self.warnings: list[str] = []
        self.check()

    # What a subclass says ------------------------------------------------------------------------------------------

    @abstractmethod
    def rules(self) -> Sequence[Rule]:
        """The table."""

    def sizes(self) -> dict[str, int]:
        """Values of the names that shapes use. Raises SourceError when config.json contradicts itself."""
        config = self.config
        heads, kv_heads, head = self.n_heads, self.n_kv_heads, self.head_dim
        if heads % kv_heads:
            raise SourceError(f"config.json has {heads} attention heads, no multiple of {kv_heads} key-value heads")
        return {
            "vocab": config.integer("vocab_size"),
            "embd": config.integer("hidden_size"),
            "ff": config.integer("intermediate_size"),
            "q": heads * head,
            "kv": kv_heads * head,
            "head": head,
        }

    def parameters(self) -> Metadata:
        """The architecture's own keys, in the order of llama.cpp's converter."""
        return self.common_parameters()

    def extra_tensors(self) -> list[Tensor]:
        """Tensors that are computed rather than stored; they come first in the file."""
        return []

    def tensor_name(self, name: str) -> str:
        """The name under which the table knows a stored tensor."""
        return name

    def gathered(self, weights: dict[str, Weight], checkpoint: Checkpoint) -> dict[str, Weight]:
        """Weights that are made of several stored ones (experts), under the names the table uses."""
        return weights

    def check(self) -> None:
        """Refuse or warn of settings under which the engine would compute something else."""
        activation = self.config.get("hidden_activation", "hidden_act")
        if activation is not None and activation not in self.activations:
            raise self.unsupported("hidden_act", activation)

    # What they share -----------------------------------------------------------------------------------------------

    def unsupported(self, key: str, value: object) -> UnsupportedError:
        """The error for a setting of config.json that the engine does not compute."""
        return UnsupportedError(
            f"config.json has {key} = {value!r}, which the engine does not compute for {self.hf_classes[0]}",
            hint="the converted model would answer wrongly, so it is not written",
        )

    def warn_of_window(self) -> None:
        """Warn of a window shorter than the context, for architectures in which the engine has none."""
        window, context = self.config.get("sliding_window"), self.config.get("max_position_embeddings")
        if isinstance(window, int) and isinstance(context, int) and window < context:
            self.warnings.append(
                f"the model was trained with an attention window of {window} tokens, which the engine does not apply: "
                f"answers may differ beyond that length"
            )

    @property
    def sliding_layers(self) -> list[bool] | None:
        """For each layer whether it attends to a window only; None when config.json does not list them."""
        types = self.config.get("layer_types")
        if not isinstance(types, list):
            return None
        if len(types) != self.n_layers:
            raise SourceError(f"config.json lists {len(types)} layer_types for {self.n_layers} layers")
        return [kind == "sliding_attention" for kind in types]

    @property
    def n_heads(self) -> int:
        return self.config.integer("num_attention_heads")

    @property
    def n_kv_heads(self) -> int:
        return self.config.integer_or(self.n_heads, "num_key_value_heads")

    @property
    def head_dim(self) -> int:
        given = self.config.get("head_dim")
        if given is not None:
            return self.config.integer("head_dim")
        width = self.config.integer("hidden_size")
        if width % self.n_heads:
            raise SourceError(f"config.json has hidden_size {width}, no multiple of {self.n_heads} attention heads")
        return width // self.n_heads

    @property
    def tied(self) -> bool:
        """The output head is the token embedding."""
        return self.config.flag("tie_word_embeddings", False)

    def common_parameters(self, *, head_keys: bool = True) -> Metadata:
        """Keys of every decoder. `head_keys`: also the width of a head, for classes that state it."""
        config, name = self.config, self.name
        keys: Metadata = {f"{name}.block_count": u32(self.n_layers)}
        keys[f"{name}.context_length"] = u32(config.integer("max_position_embeddings"))
        keys[f"{name}.embedding_length"] = u32(config.integer("hidden_size"))
        keys[f"{name}.feed_forward_length"] = u32(config.integer("intermediate_size"))
        keys[f"{name}.attention.head_count"] = u32(self.n_heads)
        keys[f"{name}.attention.head_count_kv"] = u32(self.n_kv_heads)
        keys |= rope_metadata(name, self.rope, self.rope_tensors)
        if config.get("rms_norm_eps") is not None:
            keys[f"{name}.attention.layer_norm_rms_epsilon"] = f32(config.number("rms_norm_eps"))
        if head_keys:
            keys[f"{name}.attention.key_length"] = u32(self.head_dim)
            keys[f"{name}.attention.value_length"] = u32(self.head_dim)
        return keys

    def pooling_parameters(self) -> Metadata:
        """The pooling of an embedding model, where the folder names one. Warns of layers that are left out."""
        pooling = pooling_of(self.config.path.parent)
        if pooling is None:
            return {}
        if pooling.left_out:
            self.warnings.append("the layers after pooling are left out: vectors differ from sentence-transformers'")
        return {f"{self.name}.pooling_type": u32(pooling.type)}

    def tensors(self, weights: Mapping[str, Weight], checkpoint: Checkpoint, accounted: set[str]) -> list[Tensor]:
        """All tensors of the file to be written, computed ones first, then in the order of the checkpoint.

        `accounted` names stored tensors that are used already (scales). Raises SourceError with the names when a
        tensor is missing or has another shape than the configuration says, UnsupportedError when one is left over.
        """
        used = {*weights, *accounted}
        refuse_left_over([n for n in checkpoint.tensors if n not in used and not self._is_ignored(n)])
        known = {}
        for name, plain in plain_names(weights).items():
            if not self._is_ignored(plain := self.tensor_name(plain)):
                known[plain] = weights[name]
        ready = self.gathered(known, checkpoint)
        return self.extra_tensors() + matched(self.rules(), self.n_layers, ready, self.sizes())

    def _is_ignored(self, name: str) -> bool:
        if name == "lm_head.weight" and self.tied:
            return True  # transformers does not read it either
        return any(re.fullmatch(pattern, name) for pattern in (*IGNORED, *self.ignored))
