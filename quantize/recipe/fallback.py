"""What is written instead where a row is no whole number of a type's blocks.

Knows types and row lengths. Invariant: the answer always fits the row.
"""

from __future__ import annotations

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

T = GGMLQuantizationType

_SMALLER_BLOCKS = {
    **dict.fromkeys((T.IQ1_S, T.IQ1_M, T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ3_XXS, T.IQ3_S, T.IQ4_XS), T.IQ4_NL),
    **dict.fromkeys((T.Q2_K, T.Q3_K, T.TQ1_0, T.TQ2_0), T.Q4_0),
    T.Q4_K: T.Q5_0,
    T.Q5_K: T.Q5_1,
    T.Q6_K: T.Q8_0,
}
"""Types with blocks of 256 → the type with blocks of 32 that llama.cpp takes in their place."""


def fits(kind: GGMLQuantizationType, n_cols: int) -> bool:
    return n_cols > 0 and n_cols % GGML_QUANT_SIZES[kind][0] == 0


def fallback(kind: GGMLQuantizationType, n_cols: int) -> GGMLQuantizationType:
    """The type itself, the one with smaller blocks, or F16 (`tensor_type_fallback`)."""
    if fits(kind, n_cols):
        return kind
    smaller = _SMALLER_BLOCKS.get(kind, kind)
    return smaller if fits(smaller, n_cols) else T.F16
