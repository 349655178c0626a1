"""How a model lies over several GPUs, in bytes, when the user says how."""

from __future__ import annotations

from typing import Any

import pytest

from localrun.hardware.placement import Placement, all_layers
from localrun.hardware.planner import Planner, plan_load
from localrun.hardware.shape import ModelShape, model_shape
from localrun.params import EngineParams
from localrun.spread import Spread
from tests.hardware.test_planner import PLENTY, HeaderOf, codes, gpu, ram


def placed(shape: ModelShape, *sizes: float, **spread: Any) -> Placement:
    planner = Planner(shape, EngineParams(spread=Spread(**spread)), [gpu(size) for size in sizes], PLENTY)
    return planner.placement(8192, all_layers(shape))


def test_proportions_count_more_than_free_memory(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Llama-3.1-70B"))
    first, second = placed(shape, 24, 48, tensor_split=(3, 1)).gpus
    assert first.kv == pytest.approx(3 * second.kv, rel=0.1)


def test_proportions_mean_nothing_without_a_gpu(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Llama-3.2-1B"))
    assert placed(shape, tensor_split=(3, 1)) == placed(shape)


def test_a_gpu_without_a_share_gets_nothing(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Llama-3.1-70B"))
    for shares in ((1, 0), (1,)):
        first, second = placed(shape, 48, 48, tensor_split=shares).gpus
        assert second.total == 0 < first.total
    first, second = placed(shape, 48, 48, tensor_split=(0, 1)).gpus
    assert first.total == 0 < second.total


@pytest.mark.parametrize("mode", ["layer", "row", "tensor"])
@pytest.mark.parametrize("name", ["Llama-3.1-70B", "Llama-3.2-1B", "Qwen3-30B-A3B"])
def test_every_mode_places_every_byte_once(header_of: HeaderOf, name: str, mode: str) -> None:
    shape = model_shape(header_of(name))
    alone = placed(shape, 80)
    shared = placed(shape, 48, 24, 24, split_mode=mode)
    weights = sum(gpu.weights for gpu in shared.gpus)
    assert weights == pytest.approx(alone.gpus[0].weights, abs=1000)
    assert sum(gpu.kv for gpu in shared.gpus) == pytest.approx(alone.gpus[0].kv, abs=1000)
    assert shared.ram.weights == alone.ram.weights


def test_rows_share_the_weights_exactly_and_tensors_the_cache_too(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Llama-3.1-70B"))
    rows, tensors = (placed(shape, 30, 10, split_mode=mode).gpus for mode in ("row", "tensor"))
    assert rows[0].weights == pytest.approx(3 * rows[1].weights, rel=1e-6)
    assert tensors[0].weights == pytest.approx(3 * tensors[1].weights, rel=1e-6)
    assert tensors[0].kv == pytest.approx(3 * tensors[1].kv, rel=1e-6)


def test_experts_that_were_asked_into_ram_are_there_and_the_plan_says_nothing(header_of: HeaderOf) -> None:
    header = header_of("Qwen3-30B-A3B")
    for asked, layers in ((Spread(cpu_moe=True), 48), (Spread(n_cpu_moe=10), 10), (Spread(n_cpu_moe=0), 0)):
        plan = plan_load(header, EngineParams(spread=asked), [gpu(80)], memory=ram(64))
        assert plan.placement.experts_in_ram == layers
        assert plan.gpu_layers == 49
        assert "experts_in_ram" not in codes(plan)
    whole = plan_load(header, EngineParams(), [gpu(80)], memory=ram(64))
    split = plan_load(header, EngineParams(n_ctx=whole.n_ctx, spread=Spread(cpu_moe=True)), [gpu(80)], memory=ram(64))
    moved = whole.placement.gpus[0].weights - split.placement.gpus[0].weights
    assert moved == sum(layer.expert_bytes for layer in model_shape(header).layers)


def test_no_more_experts_go_to_ram_than_asked_so_layers_go_instead(header_of: HeaderOf) -> None:
    plan = plan_load(header_of("Qwen3-30B-A3B"), EngineParams(spread=Spread(n_cpu_moe=5)), [gpu(8)], memory=ram(64))
    assert plan.gpu_layers < 49
    assert plan.placement.gpus[0].total <= gpu(8).budget


def test_experts_of_a_model_without_any_are_a_warning(header_of: HeaderOf) -> None:
    plan = plan_load(header_of("Llama-3.1-8B"), EngineParams(spread=Spread(cpu_moe=True)), [gpu(80)], memory=PLENTY)
    assert "no_experts" in codes(plan)
    assert "no_experts" not in codes(plan_load(header_of("Llama-3.1-8B"), EngineParams(), [gpu(80)], memory=PLENTY))
