"""Checkpoint or GGUF file in, quantized GGUF file out, with a measured report of what it cost.

    from quantize import convert

    result = convert("SmolLM2-135M-Instruct", "smollm2-q4_k_m.gguf", type="q4_k_m")
    print(result.plan.bits_per_weight, result.quality.evaluation.overall.divergence)

`convert(source, output=None, *, progress=None, **settings)` does everything and `dry_run` only plans; `Settings` lists
what can be set. `collect_default` makes an importance matrix, `evaluate` compares two files. Errors are in
`quantize.errors`. The library stands alone: it imports nothing of localrun.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quantize.conversion import convert, dry_run
    from quantize.importance import ImportanceMatrix, read_matrix, write_matrix
    from quantize.importance.collection import collect_default
    from quantize.progress import Progress
    from quantize.settings import Result, Settings
    from quantize.source import open_source
    from quantize.verify import evaluate

_WHERE = {
    "ImportanceMatrix": "quantize.importance",
    "Progress": "quantize.progress",
    "Result": "quantize.settings",
    "Settings": "quantize.settings",
    "collect_default": "quantize.importance.collection",
    "convert": "quantize.conversion",
    "dry_run": "quantize.conversion",
    "evaluate": "quantize.verify",
    "open_source": "quantize.source",
    "read_matrix": "quantize.importance",
    "write_matrix": "quantize.importance",
}

__all__ = [
    "ImportanceMatrix",
    "Progress",
    "Result",
    "Settings",
    "collect_default",
    "convert",
    "dry_run",
    "evaluate",
    "open_source",
    "read_matrix",
    "write_matrix",
]


def __getattr__(name: str) -> object:
    """Load what is asked for when it is asked for: numpy, gguf and the engine take a while to import."""
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
