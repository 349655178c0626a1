"""Rows become blocks and come back, and no argument can end the process."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from quantize import ggml
from quantize.blocks import round_rows
from quantize.errors import QuantizeError, WeightError
from quantize.model import Tensor
from quantize.types import IGNORE_MATRIX, WRITABLE, bits_per_weight

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((3, 512)).astype(np.float32)
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


NORMAL = RANDOM.standard_normal((1, 512))
ROWS_AT_THE_EDGES = {
    "zeros": np.zeros((1, 512)),
    "equal": -np.ones((1, 512)),
    "denormal": NORMAL * 1e-42,
    "tiny": NORMAL * 1e-15,
    "large": NORMAL * 1e6,
    "larger": NORMAL * 1e20,
    "largest": np.full((1, 512), 3e38),
    "one spike": np.eye(1, 512) * 1e4,
    "sparse": NORMAL * (RANDOM.random((1, 512)) < 0.02),
    "not a number": NORMAL * np.nan,
}
WEIGHTS_AT_THE_EDGES = {
    "none": None,
    "zeros": np.zeros(512),
    "half zeros": np.repeat([0.0, 1.0], 256),
    "wide": np.exp(RANDOM.standard_normal(512) * 10),
    "tiny": np.full(512, 1e-38),
    "huge": np.full(512, 1e30),
    "largest": np.full(512, 3e38),
}


@pytest.mark.parametrize(
    "kind", [kind for kind in FAST if kind != GGMLQuantizationType.F16], ids=lambda kind: kind.name
)
def test_no_values_and_no_weights_end_the_process(kind: GGMLQuantizationType) -> None:
    try_the_edges(kind)


@pytest.mark.slow  # libggml builds the lattice of these types on first use, which takes seconds
@pytest.mark.parametrize("kind", [kind for kind in WRITABLE if kind not in FAST], ids=lambda kind: kind.name)
def test_no_values_and_no_weights_end_the_process_with_coarse_types(kind: GGMLQuantizationType) -> None:
    try_the_edges(kind)


def try_the_edges(kind: GGMLQuantizationType) -> None:
    weight = Tensor("blk.0.attn_q.weight", (1, 512), GGMLQuantizationType.F32, lambda _start, _stop: ROWS)
    for name, rows in ROWS_AT_THE_EDGES.items():
        for weights in WEIGHTS_AT_THE_EDGES.values():
            if weights is None and ggml.requires_weights(kind):
                continue
            matrix = None if weights is None else weights.astype(np.float32)[None]
            try:
                blocks = round_rows(weight, kind, rows.astype(np.float32), 0, matrix)
            except WeightError:
                assert name in {"large", "larger", "largest", "not a number"}
            else:
                assert np.isfinite(ggml.dequantize_rows(kind, blocks, 512)).all()


def test_no_rows_give_no_blocks() -> None:
    assert ggml.quantize_rows(GGMLQuantizationType.Q4_K, ROWS[:0]).shape == (0, 288)
