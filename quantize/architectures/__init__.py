"""Model architectures, found by the class name in config.json: one module each, with a table and what it needs besides.

To add one, see docs/architectures.md. Invariant: a class that is not listed is refused by its name.
"""

from __future__ import annotations

from quantize.architectures.architecture import Architecture
from quantize.architectures.bert import Bert
from quantize.architectures.gemma import Gemma2, Gemma3
from quantize.architectures.gpt_oss import GptOss
from quantize.architectures.granite import Granite
from quantize.architectures.llama import Llama
from quantize.architectures.mistral import Mistral
from quantize.architectures.olmo2 import Olmo2
from quantize.architectures.phi3 import Phi3
from quantize.architectures.qwen import Qwen2, Qwen3, Qwen3Moe
from quantize.architectures.smollm3 import SmolLM3
from quantize.checkpoint.config import Config
from quantize.errors import SourceError, UnsupportedError

ARCHITECTURES: tuple[type[Architecture], ...] = (
    Llama,
    Mistral,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    Gemma2,
    Gemma3,
    Phi3,
    SmolLM3,
    Granite,
    Olmo2,
    GptOss,
    Bert,
)

BY_CLASS = {name: architecture for architecture in ARCHITECTURES for name in architecture.hf_classes}


def architecture_of(config: Config) -> Architecture:
    """The architecture for a model's configuration. Raises UnsupportedError for a class that is not known."""
    classes = config.values.get("architectures")
    if not isinstance(classes, list) or not classes or not isinstance(classes[0], str):
        raise SourceError(
            f"{config.path.name} does not say which architecture the model has (key 'architectures')",
            hint="this may be the configuration of something else than a language model",
        )
    if classes[0] not in BY_CLASS:
        raise UnsupportedError(
            f"architecture {classes[0]} is not supported",
            hint="supported: " + ", ".join(sorted(BY_CLASS)) + ".",
        )
    return BY_CLASS[classes[0]](config)
