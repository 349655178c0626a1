"""Types and named mixes: what a user may write, what it means, and the number a GGUF file records for it.

Knows names only; which tensor gets which type is `recipe`'s. Invariant: every name here can be written by libggml.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType

from quantize.errors import RecipeError

T = GGMLQuantizationType
F = LlamaFileType


@dataclass(frozen=True, slots=True)
class NamedMix:
    """One of llama.cpp's file types: a name, the type most tensors get, and the number in `general.file_type`."""

    name: str
    file_type: LlamaFileType
    base: GGMLQuantizationType

    @property
    def quantizes(self) -> bool:
        return self.base not in FLOAT_TYPES


FLOAT_TYPES = frozenset({T.F32, T.F16, T.BF16})

WRITABLE = tuple(
    kind
    for kind in T
    if kind.name in {"F32", "F16", "BF16", "MXFP4", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0"}
    or (kind.name.endswith("_K") and kind != T.Q8_K)
    or kind.name.startswith("IQ")
)
"""Types that a tensor can be written in. Q8_1 and Q8_K are for activations only."""

NEED_MATRIX = frozenset({T.IQ3_XXS, T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ1_M, T.IQ1_S})
"""Types so coarse that weights without an importance matrix come out as noise (llama-quant.cpp refuses them too)."""

IGNORE_MATRIX = frozenset({T.F32, T.F16, T.BF16, T.Q8_0, T.MXFP4, T.TQ1_0, T.TQ2_0})
"""Types whose rounding does not depend on an importance matrix."""

_BASES = {
    "F32": T.F32,
    "Q3_K_S": T.Q3_K,
    "Q3_K_M": T.Q3_K,
    "Q3_K_L": T.Q3_K,
    "Q4_K_S": T.Q4_K,
    "Q4_K_M": T.Q4_K,
    "Q5_K_S": T.Q5_K,
    "Q5_K_M": T.Q5_K,
    "Q2_K_S": T.Q2_K,
    "IQ3_XS": T.IQ3_S,
    "IQ3_M": T.IQ3_S,
    "IQ2_S": T.IQ2_XS,
    "IQ2_M": T.IQ2_S,
    "MXFP4_MOE": T.MXFP4,
}
"""Mixes whose most frequent type has another name (`llama_ftype_get_default_type`)."""

_ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "MXFP4": "MXFP4_MOE"}


def _mixes() -> dict[str, NamedMix]:
    found: dict[str, NamedMix] = {}
    for file_type in F:
        name = file_type.name.removeprefix("MOSTLY_").removeprefix("ALL_")
        base = _BASES.get(name) or T.__members__.get(name)
        if base in WRITABLE:
            found[name] = NamedMix(name.lower(), file_type, base)
    return found


MIXES = _mixes()
"""Upper-case name → mix."""


def parse_type(name: str) -> GGMLQuantizationType:
    """The tensor type of this name, in any case.

    Raises:
        RecipeError: no such type.
    """
    kind = T.__members__.get(name.strip().upper())
    if kind is None or kind not in WRITABLE:
        known = [kind.name.lower() for kind in WRITABLE]
        raise RecipeError(f"unknown tensor type '{name}'", hint=_suggest(name, known))
    return kind


def parse_mix(name: str) -> NamedMix:
    """The named mix of this name or alias, in any case.

    Raises:
        RecipeError: no such mix.
    """
    wanted = name.strip().upper()
    mix = MIXES.get(_ALIASES.get(wanted, wanted))
    if mix is None:
        raise RecipeError(f"unknown type '{name}'", hint=_suggest(name, [mix.name for mix in MIXES.values()]))
    return mix


def bits_per_weight(kind: GGMLQuantizationType) -> float:
    block, size = GGML_QUANT_SIZES[kind]
    return float(size * 8 / block)


def _suggest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"did you mean {close[0]}?" if close else "one of: " + ", ".join(known)
