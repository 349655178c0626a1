"""Rows become blocks and come back, and no argument can end the process."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from quantize import ggml
from quantize.errors import QuantizeError
from quantize.types import IGNORE_MATRIX, WRITABLE, bits_per_weight

ROWS = np.random.default_rng(0).standard_normal((3, 512)).astype(np.float32)
FAST = [kind for kind in WRITABLE if not kind.name.startswith(("IQ1", "IQ2"))]


@pytest.mark.parametrize("kind", FAST, ids=lambda kind: kind.name)
def test_a_type_keeps_what_its_bits_allow(kind: GGMLQuantizationType) -> None:
    blocks = ggml.quantize_rows(kind, ROWS, np.ones(512, np.float32))
    assert blocks.nbytes == round(ROWS.size * bits_per_weight(kind) / 8)
    assert ggml.is_valid(kind, blocks)
    back = ggml.dequantize_rows(kind, blocks, 512)
    # A bit more halves the error; ternary types are for weights that are ternary already.
    bound = 1.0 if kind.name.startswith("TQ") else max(6.0 * 4.0 ** -bits_per_weight(kind), 1e-5)
    assert float(((back - ROWS) ** 2).mean()) < bound


@pytest.mark.parametrize("kind", FAST, ids=lambda kind: kind.name)
def test_blocks_mean_what_the_gguf_package_reads(kind: GGMLQuantizationType) -> None:
    blocks = ggml.quantize_rows(kind, ROWS, np.ones(512, np.float32))
    np.testing.assert_allclose(ggml.dequantize_rows(kind, blocks, 512), dequantize(blocks, kind), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", sorted(IGNORE_MATRIX), ids=lambda kind: kind.name)
def test_types_said_to_ignore_the_matrix_do(kind: GGMLQuantizationType) -> None:
    weights = np.linspace(0.1, 9, 512, dtype=np.float32)
    np.testing.assert_array_equal(ggml.quantize_rows(kind, ROWS), ggml.quantize_rows(kind, ROWS, weights))


def test_what_libggml_would_abort_on_is_an_exception() -> None:
    kinds = GGMLQuantizationType
    with pytest.raises(QuantizeError, match="without an importance matrix"):
        ggml.quantize_rows(kinds.IQ2_XXS, ROWS)
    with pytest.raises(QuantizeError, match="no whole number"):
        ggml.quantize_rows(kinds.Q4_K, np.ascontiguousarray(ROWS[:, :100]))
    with pytest.raises(QuantizeError, match="importance weights"):
        ggml.quantize_rows(kinds.Q4_K, ROWS, np.ones(100, np.float32))
    with pytest.raises(QuantizeError, match="contiguous"):
        ggml.quantize_rows(kinds.Q4_0, ROWS[:, ::2])
    with pytest.raises(QuantizeError, match="no row"):
        ggml.dequantize_rows(kinds.Q4_0, np.zeros((2, 17), np.uint8), 32)


def test_no_rows_give_no_blocks() -> None:
    assert ggml.quantize_rows(GGMLQuantizationType.Q4_K, ROWS[:0]).shape == (0, 288)
