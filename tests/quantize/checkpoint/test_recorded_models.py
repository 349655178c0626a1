"""Every architecture gives the tensors, the metadata and the logits that were recorded elsewhere."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from quantize.model import Model
from quantize.source import open_source
from tests.quantize.checkpoint import engine, tiny

NAMES = (
    "llama2", "llama3", "llama-biases", "mistral", "qwen2", "qwen3", "qwen3moe", "gemma2", "gemma3", "phi3", "phi3-long",
    "smollm3", "granite", "olmo2", "gpt-oss", "gpt-oss-mxfp4", "bert",
)  # fmt: skip


class Case:
    """A recorded model, rebuilt and opened."""

    def __init__(self, name: str, folder: Path) -> None:
        self.recorded: dict[str, Any] = tiny.load(name)
        self.folder = tiny.write_checkpoint(folder / self.recorded["folder"], self.recorded, tiny.load("tokenizers"))
        self.model: Model = open_source(self.folder)


@pytest.fixture(params=NAMES, scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(request.param, tmp_path_factory.mktemp("models"))


def test_tensors_are_byte_identical_to_llama_cpps_converter(case: Case) -> None:
    ours = []
    for tensor in case.model.tensors:
        kind = tensor.keep_type or GGMLQuantizationType.F32
        if kind == GGMLQuantizationType.F32:
            data = tensor.read(0, tensor.n_rows)
        else:
            assert tensor.read_raw is not None
            data = tensor.read_raw(0, tensor.n_rows)
        ours.append([tensor.name, kind.name, list(tensor.shape), hashlib.sha256(data.tobytes()).hexdigest()])
    assert ours == case.recorded["expected"]["tensors"]


def test_logits_are_those_of_transformers(case: Case, tmp_path: Path) -> None:
    recorded = np.frombuffer(base64.b64decode(case.recorded["logits"]), "<f4")
    path = engine.write_f32(case.model, tmp_path / "model.gguf")
    ours = engine.logits(path, case.recorded["prompts"], hidden=case.model.architecture == "bert")
    theirs = recorded.reshape(ours.shape)
    assert theirs.std() > 0.3
    np.testing.assert_allclose(ours, theirs, atol=1e-3, rtol=1e-3)
