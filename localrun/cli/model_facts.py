"""What `show` tells of a model: the facts, and how people read them.

Knows headers and words; knows no stream. Invariant: a fact that is not known is None in JSON, and no line in the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localrun.catalog import ModelFile
    from localrun.gguf import GGUFHeader

_LABELS = {"license": "licence"}
"""What people read where JSON keeps the metadata's spelling."""


def facts_of(model: ModelFile, header: GGUFHeader, digest: str | None) -> dict[str, Any]:
    from localrun.errors import ModelFileError
    from localrun.gguf import GGUFArray, check_runnable

    problem = None
    try:
        check_runnable(header)
    except ModelFileError as error:
        problem = error.message
    made = {
        key: list(value) if isinstance(value, GGUFArray) else _parsed(value)
        for key, value in header.metadata.items()
        if key.startswith("localrun.quantize.")
    }
    return {
        "name": model.name,
        "title": header.name,
        "architecture": header.architecture,
        "parameters": header.parameters,
        "quantization": header.quantization,
        "bits_per_weight": round(header.bits_per_weight, 2),
        "size": header.file_size,
        "context": header.n_ctx_train,
        "layers": header.n_layers,
        "vocabulary": header.n_vocab,
        "license": header.license or (model.entry.license if model.entry else None),
        "chat_template": header.chat_template is not None,
        "draft": model.draft,
        "tensors": header.tensors_by_type,
        "quantize": made,
        "source": model.source,
        "path": str(model.path),
        "files": [str(file) for file in header.shards],
        "sha256": digest,
        "problem": problem,
    }


def fact_lines(facts: dict[str, Any]) -> list[str]:
    """One fact a line; numbers as people read them, nothing for what is not known."""
    from localrun.catalog.storage import human_size

    readable: dict[str, Callable[[Any], str]] = {
        "size": lambda v: f"{human_size(v)} ({v:,} bytes)",
        "download": lambda v: human_size(v * 1e9),
        "parameters": lambda v: v if isinstance(v, str) else _millions(v),
        "context": thousands,
        "vocabulary": lambda v: f"{v:,} tokens",
        "chat_template": lambda v: "yes" if v else "no (a base model)",
        "tensors": lambda v: ", ".join(f"{count} {name}" for name, count in v.items()),
        "files": lambda v: "\n".join(v) if len(v) > 1 else "",
        "quantize": lambda v: "\n".join(_made(key.split(".", 2)[2], value) for key, value in v.items()),
        "sources": lambda v: "\n".join(v),
    }
    lines = []
    for key, value in facts.items():
        text = "" if value is None else readable.get(key, str)(value)
        lines += [
            (_LABELS.get(key, key.replace("_", " ")) if not i else "", line) for i, line in enumerate(text.splitlines())
        ]
    width = max(len(label) for label, _ in lines)
    return [f"{label:<{width}}  {line}" for label, line in lines]


def _parsed(value: Any) -> Any:
    """The value of a key; where it is an object as JSON (a report, padded with spaces), the object."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            return json.loads(value)
        except ValueError:  # no JSON after all: the text stands for itself
            return value
    return value


def _made(key: str, value: Any) -> str:
    """One line or a few on how the model was made; the quality report in words."""
    if key != "report" or not isinstance(value, dict):
        return f"{key}: {value}"
    if value.get("status") != "measured":
        return "quality: not measured"
    try:
        slices = ", ".join(f"{name} {figures['divergence']:.4g}" for name, figures in value["slices"].items())
        return (
            f"quality: KL divergence {value['divergence']:.4g} ± {value['divergence_error']:.2g} ({slices})\n"
            f"         {value['same_top']:.1%} the same top token, perplexity {value['perplexity']:.5g} after "
            f"{value['perplexity_base']:.5g}\n"
            f"         measured against {value['base']}, {int(value['positions']):,} positions"
        )
    except (KeyError, TypeError, ValueError, AttributeError):  # written by another version
        return f"{key}: {json.dumps(value)}"


def _millions(count: int) -> str:
    return f"{count / 1e9:.1f}B" if count >= 999.5e6 else f"{count / 1e6:.0f}M"


def thousands(count: int | None) -> str:
    return f"{count:,}" if count else ""
