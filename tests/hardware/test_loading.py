"""What the planner decides is what the engine is given, and what the engine took is learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from localrun.errors import DoesNotFitError, ModelLoadError
from localrun.gguf import read_header
from localrun.hardware.correction import memory_correction
from localrun.hardware.devices import Device, Memory
from localrun.hardware.planner import Planner
from localrun.llama.buffers import buffer_sizes
from localrun.llama.context import ContextOptions, LlamaContext
from localrun.llama.devices import backends, gpu_devices, gpu_is_compiled_in
from localrun.llama.model import LlamaModel
from localrun.local import devices
from localrun.local.context import open_context
from localrun.local.loading import load_model, plan_context
from localrun.params import EngineParams
from tests.hardware.engine_memory import log_lines
from tests.hardware.shapes import BY_NAME, Q8_0, write_header
from tests.models import smollm2

GIB = 1 << 30
TINY_MIXTURE = replace(
    BY_NAME["Qwen3-30B-A3B"], name="tiny-mixture", layers=2, embd=64, heads=4, kv_heads=2, head=32, ff=64, vocab=64,
    experts=4, experts_used=2, ff_expert=32, weight_type=Q8_0,
)  # fmt: skip


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device("card", "gpu", total=8 * GIB, free=8 * GIB)
    monkeypatch.setattr(devices, "gpu_is_compiled_in", lambda: True)
    monkeypatch.setattr(devices, "gpu_devices", lambda: [device])
    return device


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Remembers what the engine is asked for; the first two calls find too little memory on the card."""
    asked: list[dict[str, object]] = []
    real = LlamaModel.load

    def load(path: Path, **options: object) -> LlamaModel:
        asked.append(options)
        if len(asked) <= 2:
            raise DoesNotFitError(f"{path} does not fit in memory: unable to allocate")
        return real(path, gpu_layers=0)

    monkeypatch.setattr(LlamaModel, "load", load)
    return asked


def test_experts_are_kept_in_ram_by_the_engine(tmp_path: Path) -> None:
    path = write_header(tmp_path, TINY_MIXTURE)
    with log_lines() as lines:
        LlamaModel.load(path, experts_in_ram=1).close()
    kept = [line for line in lines if "_exps.weight" in line and "overridden to CPU" in line]
    assert len(kept) == 3
    assert all("blk.0." in line for line in kept)
    with log_lines() as lines:
        LlamaModel.load(path).close()
    assert not any("overridden" in line for line in lines)


def test_a_plan_with_experts_in_ram_reaches_the_engine(
    card: Device, loads: list[dict[str, object]], header_file: Callable[[str], Path]
) -> None:
    header = read_header(header_file("Qwen3-30B-A3B"), vocabulary=False)
    params = EngineParams(n_ctx=4096)
    planner_memory = Memory(64 * GIB, 60 * GIB)
    plan = plan_context(header, params)
    plan = replace(plan, load=Planner(plan.planner.shape, params, [card], planner_memory).plan())
    assert plan.load.placement.experts_in_ram
    with pytest.raises(ModelLoadError):  # the third try is the real engine's, and there is no such file
        load_model(Path("nothing.gguf"), params, plan)
    assert loads[0]["experts_in_ram"] == plan.load.placement.experts_in_ram
    assert loads[0]["gpu_layers"] == 49


@pytest.mark.model
def test_a_card_too_small_after_all_gets_fewer_layers_each_step_told(
    card: Device, loads: list[dict[str, object]]
) -> None:
    params = EngineParams()
    plan = plan_context(read_header(smollm2()), params)
    assert plan.load.gpu_layers == 31
    loaded = load_model(smollm2(), params, plan)
    loaded.model.close()
    assert [options["gpu_layers"] for options in loads] == [31, 23, 15]
    assert [warning.code for warning in loaded.warnings] == ["fewer_gpu_layers"] * 2
    assert loaded.gpu_layers == 15


@pytest.mark.model
def test_layers_that_were_asked_for_are_never_reduced(card: Device, loads: list[dict[str, object]]) -> None:
    params = EngineParams(gpu_layers=10)
    with pytest.raises(DoesNotFitError):
        load_model(smollm2(), params, plan_context(read_header(smollm2()), params))
    assert len(loads) == 1


@pytest.mark.model
def test_a_context_that_memory_refuses_is_halved_and_told_unless_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    header = read_header(smollm2())
    real = LlamaContext.__init__
    tries: list[int] = []

    def refuse_long(self: LlamaContext, model: LlamaModel, options: ContextOptions) -> None:
        tries.append(options.n_ctx_seq)
        if options.n_ctx_seq > 2048:
            raise DoesNotFitError("a context could not be made")
        real(self, model, options)

    monkeypatch.setattr(LlamaContext, "__init__", refuse_long)
    loaded = load_model(smollm2(), EngineParams(), plan_context(header, EngineParams()))
    try:
        context = open_context(loaded, header, EngineParams(), loaded.plan.n_ctx, 512)
        context.close()
        assert tries == [8192, 4096, 2048]
        assert [warning.code for warning in loaded.warnings] == ["context_reduced"] * 2
        with pytest.raises(DoesNotFitError):
            open_context(loaded, header, EngineParams(n_ctx=8192), 8192, 512)
    finally:
        loaded.model.close()


@pytest.mark.model
def test_what_loading_took_is_near_what_was_planned() -> None:
    header, params = read_header(smollm2()), EngineParams(n_ctx=2048)
    plan = plan_context(header, params)
    loaded = load_model(smollm2(), params, plan)
    try:
        with buffer_sizes() as taken:
            open_context(loaded, header, params, 2048, 2048).close()
        assert loaded.bytes_taken + taken.total == pytest.approx(plan.load.placement.total, rel=0.03)
        assert memory_correction() == pytest.approx(1.0, abs=0.03)
    finally:
        loaded.model.close()


def test_this_engine_sees_its_own_backends() -> None:
    assert "CPU" in backends()
    assert gpu_is_compiled_in() == any(name != "CPU" for name in backends())
    assert all(device.total >= device.free for device in gpu_devices())
