"""Rotary position embedding settings, from both forms a config.json may have.

Older files have `rope_theta` and `rope_scaling` at the top, newer ones put both into `rope_parameters`, there possibly
one set for each kind of attention layer. Invariant: a scaling method the engine does not have is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quantize.checkpoint.config import Config, Json
from quantize.errors import SourceError, UnsupportedError
from quantize.metadata import Metadata, f32, string, u32

_UNSCALED = ("default", "none")


@dataclass(frozen=True, slots=True)
class Rope:
    """The settings of full-attention layers; `local_theta` is the base of sliding-window layers where it differs."""

    theta: float | None
    local_theta: float | None
    kind: str
    values: Json
    context: int | None

    def number(self, *keys: str) -> float | None:
        """A number of the scaling settings, None when it is absent. Raises SourceError for another type."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise SourceError(f"config.json has {key} = {value!r} in its rope settings, expected a number")
            return float(value)
        return None

    def required(self, *keys: str) -> float:
        value = self.number(*keys)
        if value is None:
            raise SourceError(f"config.json has rope scaling of type {self.kind!r} without {keys[0]!r}")
        return value


def rope_of(config: Config) -> Rope:
    """Read the settings of a model. Raises SourceError when they are damaged."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(given, dict):
        raise SourceError(f"config.json has a bad rope setting: {given!r}")
    full, local = given.get("full_attention"), given.get("sliding_attention")
    values: Json = full if isinstance(full, dict) else given
    local_theta: Any = local.get("rope_theta") if isinstance(local, dict) else None
    theta: Any = values.get("rope_theta")
    kind = values.get("rope_type", values.get("type")) or "default"
    top = config.values
    return Rope(
        theta=_first(theta, top.get("rope_theta")),
        local_theta=_first(local_theta, top.get("rope_local_base_freq")),
        kind=str(kind).lower(),
        values={"original_max_position_embeddings": top.get("original_max_position_embeddings"), **values},
        context=config.get("max_position_embeddings"),
    )


def _first(*values: Any) -> float | None:
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool):
            if not (math.isfinite(value) and value > 0):
                raise SourceError(f"config.json has the rope base {value!r}, expected a number above zero")
            return float(value)
    return None


def rope_metadata(name: str, rope: Rope, by_tensor: tuple[str, ...]) -> Metadata:
    """The scaling and base keys. `by_tensor` names the methods that the architecture stores as tensors.

    Raises UnsupportedError for a method the engine does not compute for this architecture.
    """
    keys: Metadata = {}
    scaling = f"{name}.rope.scaling"
    if rope.kind in ("linear", "yarn"):
        keys[f"{scaling}.type"] = string(rope.kind)
        keys[f"{scaling}.factor"] = f32(rope.required("factor"))
    elif rope.kind not in (*_UNSCALED, *by_tensor):
        known = ", ".join(("linear", "yarn", *by_tensor))
        raise UnsupportedError(
            f"rope scaling of type {rope.kind!r} is not supported for {name} models", hint=f"known: {known}"
        )
    if rope.kind == "yarn":
        keys |= _yarn(scaling, rope)
    if rope.theta is not None:
        keys[f"{name}.rope.freq_base"] = f32(rope.theta)
    if rope.local_theta is not None:
        keys[f"{name}.rope.freq_base_swa"] = f32(rope.local_theta)
    return keys


def _yarn(scaling: str, rope: Rope) -> Metadata:
    context = rope.number("original_max_position_embeddings") or rope.context
    if context is None:
        raise SourceError("config.json has yarn scaling without original_max_position_embeddings")
    keys = {f"{scaling}.original_context_length": u32(int(context))}
    optional = {
        "yarn_ext_factor": ("extrapolation_factor",),
        "yarn_attn_factor": ("attention_factor", "attn_factor"),
        "yarn_beta_fast": ("beta_fast",),
        "yarn_beta_slow": ("beta_slow",),
    }
    for key, names in optional.items():
        value = rope.number(*names)
        if value is not None:
            keys[f"{scaling}.{key}"] = f32(value)
    return keys


def llama3_factors(rope: Rope, head_dim: int) -> npt.NDArray[np.float32] | None:
    """Llama 3's frequency divisors, None for another scaling.  # (head_dim / 2,)

    Method: `_compute_llama3_parameters` of transformers, in single precision as llama.cpp's converter does it.
    """
    if rope.kind != "llama3":
        return None
    theta = rope.theta or 10000.0
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    frequencies = np.float32(1.0) / np.power(np.float32(theta), exponents, dtype=np.float32)
    factor, low, high = (
        rope.number("factor") or 8.0,
        rope.number("low_freq_factor") or 1.0,
        rope.number("high_freq_factor") or 4.0,
    )
    context = rope.number("original_max_position_embeddings") or 8192.0
    factors = []
    for frequency in frequencies:
        wavelength = np.float32(2 * math.pi) / frequency
        if wavelength < context / high:
            factors.append(1.0)
        elif wavelength > context / low:
            factors.append(factor)
        else:
            smooth = (np.float32(context) / wavelength - np.float32(low)) / np.float32(high - low)
            factors.append(float(np.float32(1) / ((np.float32(1) - smooth) / np.float32(factor) + smooth)))
    return np.array(factors, dtype=np.float32)
