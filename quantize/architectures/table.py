"""A table from checkpoint names to GGUF names, and how the tensors of a checkpoint are held against it.

Knows names, shapes and which tensors must stay F32; nothing of a particular architecture. Invariant: every tensor
ends up used, ignored on purpose, or named in an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from quantize.checkpoint.weight import Weight
from quantize.errors import SourceError, UnsupportedError
from quantize.model import Rows, Tensor

Transform = Callable[[Weight], Weight]

IGNORED = (r".*\.rotary_emb\.inv_freq", r".*\.attention\.masked_bias", r".*\.attn\.bias")
"""Buffers that old checkpoints store and nobody reads."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a table. `{i}` in the names stands for the layer; the shape names entries of `sizes`."""

    source: str
    target: str
    shape: tuple[str, ...]
    transform: Transform | None = None
    optional: bool = False
    """May be absent, but then in every layer."""


def matched(
    rules: Sequence[Rule], n_layers: int, weights: Mapping[str, Weight], sizes: Mapping[str, int]
) -> list[Tensor]:
    """The tensors of the file to be written, in the order of the weights.

    Raises SourceError with the names when a tensor is missing or has another shape than the sizes say, UnsupportedError
    when one is left over.
    """
    table = {rule.source: rule for rule in _for_layers(rules, n_layers)}
    _check_missing(rules, n_layers, table, weights)
    refuse_left_over([name for name in weights if name not in table])
    return [_finished(table[name], weight, sizes) for name, weight in weights.items()]


def refuse_left_over(names: Sequence[str]) -> None:
    """Raises UnsupportedError when there are tensors that nothing reads."""
    if names:
        raise UnsupportedError(
            f"{len(names)} tensors do not belong to the architecture: {', '.join(names[:5])}",
            hint="the checkpoint may be a variant of the architecture, an adapter, or quantized by an unknown method",
        )


def plain_names(names: Collection[str]) -> dict[str, str]:
    """Each name in one form: with `model.` in front, without the parts that multimodal wrappers put in.

    Raises SourceError when two names become one.
    """
    bare = not any(name.startswith(("model.", "language_model.", "lm_head.")) for name in names)
    plain = {}
    for name in names:
        short = name.replace("language_model.", "")
        short = f"model.{short}" if bare else short
        plain[name] = short.removeprefix("model.") if short.startswith("model.model.") else short
    if len(set(plain.values())) < len(plain):
        twice = next(name for name, short in plain.items() if list(plain.values()).count(short) > 1)
        raise SourceError(f"tensor {twice!r} is stored under two names")
    return plain


def _for_layers(rules: Sequence[Rule], n_layers: int) -> Iterator[Rule]:
    for rule in rules:
        if "{i}" not in rule.source:
            yield rule
            continue
        for i in range(n_layers):
            source, target = rule.source.replace("{i}", str(i)), rule.target.replace("{i}", str(i))
            yield replace(rule, source=source, target=target)


def _check_missing(
    rules: Sequence[Rule], n_layers: int, table: Mapping[str, Rule], weights: Mapping[str, Weight]
) -> None:
    missing = [name for name, rule in table.items() if not rule.optional and name not in weights]
    for rule in rules:
        if rule.optional and "{i}" in rule.source:
            names = [rule.source.replace("{i}", str(i)) for i in range(n_layers)]
            absent = [name for name in names if name not in weights]
            missing += absent if len(absent) < len(names) else []
    if missing:
        untied = "config.json says the output head is not tied to the embedding."
        hint = untied if "lm_head.weight" in missing else None
        raise SourceError(f"{len(missing)} tensors are missing: {', '.join(missing[:5])}", hint=hint)


def _finished(rule: Rule, weight: Weight, sizes: Mapping[str, int]) -> Tensor:
    """Check the shape, transform, and decide what the recipe may not change."""
    expected = tuple(int(part) if part.isdecimal() else sizes[part] for part in rule.shape)
    if weight.shape != expected:
        raise SourceError(
            f"tensor {weight.label!r} has shape {weight.shape}, config.json calls for {expected}",
            hint="config.json belongs to another model, or tokens were added without saving it.",
        )
    done = weight if rule.transform is None else rule.transform(weight)
    return finished_tensor(rule.target, done)


_ALWAYS_F32 = re.compile(
    r".*_norm\.weight|.*\.ffn_gate_inp\.weight|position_embd\.weight|token_types\.weight|.*(?<!\.weight)"
)
"""Names the engine wants in F32 whatever the recipe: norms, routers, positions, everything that is no `.weight`.

Same rule as `prepare_tensors` in llama.cpp's converter."""


def finished_tensor(name: str, weight: Weight) -> Tensor:
    """A weight under its GGUF name. One-axis tensors and some by name stay F32."""
    keep = None
    if weight.type == GGMLQuantizationType.MXFP4:
        keep = weight.type  # rounding it again would only lose
    elif len(weight.shape) < 2 or _ALWAYS_F32.fullmatch(name):
        keep = GGMLQuantizationType.F32
    raw = weight.stored if keep is None or keep == weight.type else None
    return Tensor(name, weight.shape, weight.type, weight.read, keep, raw, weight.row_multiple)


def computed_tensor(name: str, values: npt.NDArray[np.float32]) -> Tensor:
    """A small one-axis tensor that is computed, always F32."""
    rows: Rows = values.reshape(1, -1)
    return Tensor(
        name, values.shape, GGMLQuantizationType.F32, lambda start, stop: rows[start:stop], GGMLQuantizationType.F32
    )
