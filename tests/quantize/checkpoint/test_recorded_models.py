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
    "llama2", "llama3", "llama-biases", "mistral", "qwen2", "qwen3", "qwen3moe", "gemma2", "gemma3", "gemma3-nested",
    "phi3", "phi3-long", "smollm3", "granite", "olmo2", "gpt-oss", "gpt-oss-mxfp4", "bert",
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


# Keys that differ from the converter's on purpose, and why.
OURS_ALONE = {
    # Said in so many words instead of left to the engine's default.
    "tokenizer.ggml.add_space_prefix",
    # A further end token that generation_config.json lists; the converter reads only the first place it finds.
    "tokenizer.ggml.eot_token_id",
}
WRITERS_BUSINESS = {"general.file_type", "general.quantization_version"}


def test_metadata_equals_that_of_llama_cpps_converter(case: Case) -> None:
    theirs = {k: v for k, v in case.recorded["expected"]["metadata"].items() if k not in WRITERS_BUSINESS}
    ours = {k: v for k, v in case.model.metadata.items() if k in theirs or k not in OURS_ALONE}
    if case.model.architecture == "qwen2":
        _forget_invented_token(theirs)
    assert sorted(ours) == sorted(theirs)
    for key, value in ours.items():
        types = [value.type.name] + ([value.element.name] if value.element is not None else [])
        assert types == theirs[key]["types"], key
        assert _comparable(value.value) == _comparable(theirs[key]["value"]), key


def _comparable(value: Any) -> Any:
    """Floats as the file stores them."""
    if isinstance(value, float):
        return float(np.float32(value))
    if isinstance(value, list) and value and isinstance(value[0], float):
        return np.float32(value).tolist()
    return value


def _forget_invented_token(theirs: dict[str, Any]) -> None:
    """Transformers gives tokenizers of class Qwen2 an end token, in the padding, that no file mentions."""
    tokens, types = (theirs[f"tokenizer.ggml.{key}"]["value"] for key in ("tokens", "token_type"))
    if "<|endoftext|>" in tokens:
        at = tokens.index("<|endoftext|>")
        tokens[at], types[at] = f"[PAD{at}]", 5


def test_any_slabs_give_the_rows_of_the_whole(case: Case) -> None:
    for tensor in case.model.tensors:
        whole = tensor.read(0, tensor.n_rows)
        step = tensor.row_multiple * max(1, 5 // tensor.row_multiple)
        starts = range(0, tensor.n_rows, step)
        slabs = [tensor.read(start, min(start + step, tensor.n_rows)) for start in starts]
        np.testing.assert_array_equal(np.concatenate(slabs), whole)
        assert whole.dtype == np.float32
        assert whole.flags.c_contiguous
        assert whole.shape == (tensor.n_rows, tensor.n_cols)


def test_raw_rows_hold_the_values_that_are_read(case: Case) -> None:
    plain = {GGMLQuantizationType.F32: np.float32, GGMLQuantizationType.F16: np.float16}
    for tensor in case.model.tensors:
        kind = tensor.keep_type or tensor.source_type
        if tensor.read_raw is None or kind == GGMLQuantizationType.MXFP4:
            continue
        raw = tensor.read_raw(0, tensor.n_rows)
        assert raw.dtype == np.uint8
        if kind == GGMLQuantizationType.BF16:
            values = (np.ascontiguousarray(raw).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.ascontiguousarray(raw).view(plain[kind]).astype(np.float32)
        np.testing.assert_array_equal(values, tensor.read(0, tensor.n_rows))
