"""Promises of the memory count: what it says is what the engine plans, for every shape we know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localrun.gguf import GGUFHeader, read_header
from localrun.hardware.footprint import ContextSize, footprint, kv_bytes_per_token, read_bytes_per_token
from localrun.hardware.shape import model_shape
from localrun.params import KVType
from tests.hardware.engine_memory import engine_memory
from tests.hardware.kinds import KINDS, write_kind
from tests.hardware.shapes import SHAPES, Shape
from tests.models import gemma3, smollm2

HeaderFile = Callable[[str], Path]
HeaderOf = Callable[[str], GGUFHeader]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_a_token_costs_what_the_published_figures_say(shape: Shape, header_of: HeaderOf) -> None:
    ours = model_shape(header_of(shape.name))
    assert kv_bytes_per_token(ours) == shape.kv_bytes_per_token
    windowed = sum(2 * (layer.k_width + layer.v_width) for layer in ours.layers if layer.windowed)
    assert windowed == shape.kv_bytes_window
    assert 4 * ours.state_width * sum(layer.recurrent for layer in ours.layers) == shape.state_bytes


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_the_count_is_within_three_percent_of_what_the_engine_plans(shape: Shape, header_file: HeaderFile) -> None:
    path = header_file(shape.name)
    flash = SHAPES.index(shape) % 2 == 0
    n_ctx = 8192 if flash else 32768
    ours = footprint(model_shape(read_header(path, vocabulary=False)), ContextSize(n_ctx, flash_attention=flash))
    engine = engine_memory(path, n_ctx=n_ctx, flash=flash)
    rounding = 0.01 * 2**20 * 2  # the engine's log has two decimals of a MiB
    assert ours.kv == pytest.approx(engine.kv, abs=rounding)
    assert ours.state == pytest.approx(engine.state, abs=rounding)
    assert ours.compute == pytest.approx(engine.compute, rel=0.25)
    assert ours.total == pytest.approx(ours.weights + engine.kv + engine.state + engine.compute, rel=0.03)


@pytest.mark.parametrize(("kv_type", "number"), [("q8_0", 8), ("q4_0", 2)])
def test_a_quantized_cache_is_counted_by_its_blocks(kv_type: KVType, number: int, header_file: HeaderFile) -> None:
    path = header_file("Llama-3.1-8B")
    ours = footprint(
        model_shape(read_header(path, vocabulary=False)), ContextSize(4096, kv_type=kv_type, flash_attention=True)
    )
    engine = engine_memory(path, n_ctx=4096, kv_type=number, flash=True)
    assert ours.kv == pytest.approx(engine.kv, abs=2**15)


def test_more_sequences_cost_windows_and_states_but_no_cells(header_file: HeaderFile) -> None:
    for name, grows in (("Gemma-3-4B", True), ("Mamba-2.8B", True), ("Llama-3.1-8B", False)):
        path = header_file(name)
        shape = model_shape(read_header(path, vocabulary=False))
        one, many = (footprint(shape, ContextSize(32768, n_seq_max=n)) for n in (1, 16))
        assert (many.kv + many.state > one.kv + one.state) == grows
        engine = engine_memory(path, n_ctx=32768, n_seq_max=16)
        assert many.kv + many.state == pytest.approx(engine.kv + engine.state, abs=2**15)


def test_weights_are_every_tensor_once(header_of: HeaderOf) -> None:
    for name in ("Llama-3.2-1B", "DeepSeek-V3", "gpt-oss-20b"):
        header = header_of(name)
        assert model_shape(header).weight_bytes == pytest.approx(sum(t.n_bytes for t in header.tensors), rel=1e-6)


def test_a_token_reads_the_active_experts_only(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Qwen3-30B-A3B"))
    assert shape.active_bytes < shape.weight_bytes / 7  # 3 of 30 billion weights, and the output layer
    dense = model_shape(header_of("Llama-3.2-1B"))
    assert dense.active_bytes == pytest.approx(dense.weight_bytes, rel=1e-6)


def test_a_window_bounds_what_a_token_reads(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Gemma-3-4B"))
    context = ContextSize(32768)
    near, far = (read_bytes_per_token(shape, context, depth) - shape.active_bytes for depth in (1024, 32768))
    assert near == 1024 * (20480 + 118784)
    assert far == 32768 * 20480 + 1024 * 118784


@pytest.mark.model
@pytest.mark.parametrize("model", [smollm2, gemma3], ids=lambda model: model.__name__)
@pytest.mark.parametrize("n_ctx", [512, 4096])
def test_a_real_model_takes_what_was_counted(model: Callable[[], Path], n_ctx: int) -> None:
    ours = footprint(model_shape(read_header(model())), ContextSize(n_ctx))
    taken = engine_memory(model(), n_ctx=n_ctx, allocate=True)
    assert ours.weights == pytest.approx(taken.weights, rel=0.03)
    assert ours.total == pytest.approx(taken.weights + taken.kv + taken.state + taken.compute, rel=0.03)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("flash", [False, True])
def test_states_windows_and_layers_of_unequal_width_are_counted_as_the_engine_does(
    kind: Callable[[], Any], flash: bool, tmp_path: Path
) -> None:
    path = write_kind(tmp_path / "kind.gguf", kind)
    ours = footprint(
        model_shape(read_header(path, vocabulary=False)), ContextSize(8192, n_seq_max=3, flash_attention=flash)
    )
    engine = engine_memory(path, n_ctx=8192, n_seq_max=3, flash=flash)
    assert ours.kv == pytest.approx(engine.kv, abs=2**15)
    assert ours.state == pytest.approx(engine.state, abs=2**14)
    assert ours.kv > 0
