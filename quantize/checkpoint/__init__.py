"""Reading checkpoints: JSON files, safetensors headers, shards, and lazily read weights.

Knows the Hugging Face folder layout; knows neither GGUF names nor architectures. Invariant: everything that can be
wrong with the files is found when a folder is opened, before a weight is read.
"""

from quantize.checkpoint.config import Config, read_json
from quantize.checkpoint.folder import Checkpoint, open_checkpoint
from quantize.checkpoint.weight import Weight

__all__ = ["Checkpoint", "Config", "Weight", "open_checkpoint", "read_json"]
