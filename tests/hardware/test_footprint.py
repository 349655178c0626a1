"""Promises of the memory count: what it says is what the engine plans, for every shape we know."""

from __future__ import annotations

from pathlib import Path

import pytest

from localrun.gguf import read_header
from localrun.hardware.footprint import ContextSize, footprint, kv_bytes_per_token, read_bytes_per_token
from localrun.hardware.shape import ModelShape, model_shape
from tests.hardware.engine_memory import engine_memory
from tests.hardware.shapes import BY_NAME, SHAPES, Shape, write_header


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("headers")


def shape_of(folder: Path, shape: Shape) -> ModelShape:
    return model_shape(read_header(header_file(folder, shape)))


def header_file(folder: Path, shape: Shape) -> Path:
    path = folder / f"{shape.name}.gguf"
    return path if path.exists() else write_header(folder, shape)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_a_token_costs_what_the_published_figures_say(shape: Shape, folder: Path) -> None:
    ours = shape_of(folder, shape)
    assert kv_bytes_per_token(ours) == shape.kv_bytes_per_token
    windowed = sum(2 * (layer.k_width + layer.v_width) for layer in ours.layers if layer.windowed)
    assert windowed == shape.kv_bytes_window
    assert 4 * ours.state_width * sum(layer.recurrent for layer in ours.layers) == shape.state_bytes


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
@pytest.mark.parametrize(("n_ctx", "flash"), [(8192, True), (32768, False)])
def test_the_count_is_within_three_percent_of_what_the_engine_plans(
    shape: Shape, n_ctx: int, flash: bool, folder: Path
) -> None:
    path = header_file(folder, shape)
    ours = footprint(model_shape(read_header(path)), ContextSize(n_ctx, flash_attention=flash))
    engine = engine_memory(path, n_ctx=n_ctx, flash=flash)
    rounding = 0.01 * 2**20 * 2  # the engine's log has two decimals of a MiB
    assert ours.kv == pytest.approx(engine.kv, abs=rounding)
    assert ours.state == pytest.approx(engine.state, abs=rounding)
    assert ours.compute == pytest.approx(engine.compute, rel=0.25)
    assert ours.total == pytest.approx(ours.weights + engine.kv + engine.state + engine.compute, rel=0.03)


@pytest.mark.parametrize(("kv_type", "number"), [("q8_0", 8), ("q4_0", 2)])
def test_a_quantized_cache_is_counted_by_its_blocks(kv_type: str, number: int, folder: Path) -> None:
    path = header_file(folder, BY_NAME["Llama-3.1-8B"])
    ours = footprint(model_shape(read_header(path)), ContextSize(4096, kv_type=kv_type, flash_attention=True))  # type: ignore[arg-type]
    engine = engine_memory(path, n_ctx=4096, kv_type=number, flash=True)
    assert ours.kv == pytest.approx(engine.kv, abs=2**15)


def test_more_sequences_cost_windows_and_states_but_no_cells(folder: Path) -> None:
    for name, grows in (("Gemma-3-4B", True), ("Mamba-2.8B", True), ("Llama-3.1-8B", False)):
        path = header_file(folder, BY_NAME[name])
        shape = model_shape(read_header(path))
        one, many = (footprint(shape, ContextSize(32768, n_seq_max=n)) for n in (1, 16))
        assert (many.kv + many.state > one.kv + one.state) == grows
        engine = engine_memory(path, n_ctx=32768, n_seq_max=16)
        assert many.kv + many.state == pytest.approx(engine.kv + engine.state, abs=2**15)


def test_weights_are_every_tensor_once(folder: Path) -> None:
    for shape in (BY_NAME["Llama-3.2-1B"], BY_NAME["DeepSeek-V3"], BY_NAME["gpt-oss-20b"]):
        header = read_header(header_file(folder, shape))
        assert model_shape(header).weight_bytes == pytest.approx(sum(t.n_bytes for t in header.tensors), rel=1e-6)


def test_a_token_reads_the_active_experts_only(folder: Path) -> None:
    shape = shape_of(folder, BY_NAME["Qwen3-30B-A3B"])
    assert shape.active_bytes < shape.weight_bytes / 7  # 3 of 30 billion weights, and the output layer
    dense = shape_of(folder, BY_NAME["Llama-3.2-1B"])
    assert dense.active_bytes == pytest.approx(dense.weight_bytes, rel=1e-6)


def test_a_window_bounds_what_a_token_reads(folder: Path) -> None:
    shape = shape_of(folder, BY_NAME["Gemma-3-4B"])
    context = ContextSize(32768)
    near, far = (read_bytes_per_token(shape, context, depth) - shape.active_bytes for depth in (1024, 32768))
    assert near == 1024 * (20480 + 118784)
    assert far == 32768 * 20480 + 1024 * 118784
