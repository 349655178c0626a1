"""A real model, file to file."""

from __future__ import annotations

from pathlib import Path

import pytest

from quantize import convert
from quantize.types import parse_mix
from tests.quantize.oracle import llama_quantize
from tests.quantize.synthetic import read_tensors

pytestmark = pytest.mark.model


def test_a_real_model_quantized_again_equals_llama_quantize_s(smollm2: Path, tmp_path: Path) -> None:
    result = convert(smollm2, tmp_path / "ours.gguf", type="q4_k_m", imatrix="off", report=False, threads=2)
    llama_quantize(smollm2, tmp_path / "theirs.gguf", int(parse_mix("q4_k_m").file_type), requantize=True)
    assert read_tensors(result.files[0]) == read_tensors(tmp_path / "theirs.gguf")
    assert any("loses twice" in warning for warning in result.warnings)
