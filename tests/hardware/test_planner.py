"""Promises of the planner, on devices that are only described."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from localrun.errors import DoesNotFitError
from localrun.gguf import GGUFHeader
from localrun.hardware.devices import Device, Memory
from localrun.hardware.placement import all_layers
from localrun.hardware.planner import LoadPlan, Planner, plan_load
from localrun.hardware.shape import model_shape
from localrun.params import EngineParams, KVType

HeaderOf = Callable[[str], GGUFHeader]
GIB = 1 << 30
PLENTY = Memory(512 * GIB, 500 * GIB)


def gpu(gib: float, name: str = "card") -> Device:
    return Device(name, "gpu", total=int(gib * GIB), free=int(gib * GIB), backend="CUDA")


def unified(gib: float) -> Device:
    return Device("M-something", "unified", total=int(gib * GIB), free=int(gib * GIB), backend="MTL")


def ram(gib: float) -> Memory:
    return Memory(int(gib * GIB), int(gib * GIB))


def codes(plan: LoadPlan) -> set[str]:
    return {notice.code for notice in plan.notices}


def test_a_large_card_takes_every_layer_and_the_whole_context(header_of: HeaderOf) -> None:
    plan = plan_load(header_of("Llama-3.1-8B"), EngineParams(), [gpu(80)], memory=PLENTY)
    assert plan.gpu_layers == 33
    assert plan.n_ctx == 131072
    assert plan.notices == ()
    assert plan.placement.ram.weights > 0, "the embedding stays in RAM"
    assert plan.placement.ram.kv == 0


def test_what_is_planned_fits_the_card_with_a_margin(header_of: HeaderOf) -> None:
    for gib in (1, 2, 4, 6, 8, 12, 24):
        card = gpu(gib)
        plan = plan_load(header_of("Llama-3.1-8B"), EngineParams(), [card], memory=PLENTY)
        assert plan.placement.gpus[0].total <= card.budget < card.free


def test_more_memory_never_means_fewer_layers_or_a_shorter_context(header_of: HeaderOf) -> None:
    plans = [plan_load(header_of("Qwen3-8B"), EngineParams(), [gpu(g)], memory=PLENTY) for g in (2, 3, 4, 6, 8, 16)]
    layers = [plan.gpu_layers for plan in plans]
    assert layers == sorted(layers)
    assert layers[0] < layers[-1] == 37
    whole = [plan.n_ctx for plan in plans if plan.gpu_layers == 37]
    assert whole == sorted(whole)


def test_layers_that_do_not_fit_are_told(header_of: HeaderOf) -> None:
    plan = plan_load(header_of("Llama-3.1-8B"), EngineParams(), [gpu(4)], memory=PLENTY)
    assert 0 < plan.gpu_layers < 33
    assert "fewer_gpu_layers" in codes(plan)


def test_the_last_layers_and_the_output_go_to_the_card_first(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Llama-3.1-8B"))
    planner = Planner(shape, EngineParams(), [gpu(80)], PLENTY)
    one = planner.placement(4096, 1)
    assert one.gpus[0].weights == shape.output_bytes
    assert one.gpus[0].kv == 0
    two = planner.placement(4096, 2)
    assert two.gpus[0].weights == shape.output_bytes + shape.layers[-1].weight_bytes
    assert two.gpus[0].kv == 4096 * 131072 // 32


def test_a_tied_output_layer_is_copied_to_the_card(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Llama-3.2-1B"))
    planner = Planner(shape, EngineParams(), [gpu(80)], PLENTY)
    assert planner.placement(4096, 0).ram.weights == shape.weight_bytes
    whole = planner.placement(4096, 17)
    assert whole.ram.weights + whole.gpus[0].weights == shape.weight_bytes + shape.output_bytes


def test_two_cards_share_the_layers_by_their_free_memory(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Llama-3.1-70B"))
    planner = Planner(shape, EngineParams(), [gpu(48, "large"), gpu(24, "small")], PLENTY)
    large, small = planner.placement(8192, all_layers(shape)).gpus
    assert large.kv == pytest.approx(2 * small.kv, rel=0.1)
    assert large.weights > 1.5 * small.weights


def test_experts_stay_in_ram_when_only_the_rest_fits(header_of: HeaderOf) -> None:
    plan = plan_load(header_of("Qwen3-30B-A3B"), EngineParams(), [gpu(8)], memory=ram(64))
    assert 0 < plan.placement.experts_in_ram <= 48
    assert plan.gpu_layers == 49
    assert plan.placement.ram.weights > plan.placement.gpus[0].weights
    assert "experts_in_ram" in codes(plan)


def test_a_larger_card_takes_more_experts(header_of: HeaderOf) -> None:
    header = header_of("Qwen3-30B-A3B")
    plans = [plan_load(header, EngineParams(), [gpu(gib)], memory=ram(64)) for gib in (4, 6, 8, 12, 16, 24)]
    counts = [plan.placement.experts_in_ram for plan in plans]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0 < counts[2] < counts[0]
    assert all(plan.gpu_layers == 49 for plan in plans)
    for plan, gib in zip(plans, (4, 6, 8, 12, 16, 24), strict=True):
        assert plan.placement.gpus[0].total <= gpu(gib).budget


def test_unified_memory_is_counted_once_and_never_beyond_the_recommended_working_set(header_of: HeaderOf) -> None:
    machine, device = ram(16), unified(10.7)
    plan = plan_load(header_of("Llama-3.1-8B"), EngineParams(), [device], memory=machine)
    assert plan.gpu_layers == 33
    assert plan.placement.gpus[0].total <= 10.7 * GIB
    assert plan.placement.total <= machine.budget
    small = plan_load(header_of("Llama-3.1-8B"), EngineParams(), [unified(10.7)], memory=ram(6))
    assert small.placement.total <= ram(6).budget


def test_without_a_card_the_context_is_what_ram_allows(header_of: HeaderOf) -> None:
    plan = plan_load(header_of("Llama-3.1-8B"), EngineParams(), memory=ram(16))
    assert plan.gpu_layers == 0
    assert 8192 < plan.n_ctx < 131072
    assert plan.placement.total <= ram(16).budget
    assert "context_reduced" in codes(plan)


def test_a_long_context_turns_flash_attention_on_where_scores_would_not_fit(header_of: HeaderOf) -> None:
    header = header_of("Llama-3.2-1B")
    assert plan_load(header, EngineParams(n_ctx=4096), memory=ram(16)).flash_attention is False
    assert plan_load(header, EngineParams(n_ctx=131072), memory=ram(10)).flash_attention is True
    with pytest.raises(DoesNotFitError):
        plan_load(header, EngineParams(n_ctx=131072, flash_attention=False), memory=ram(10))


def test_an_automatic_context_does_not_cost_speed_unasked(header_of: HeaderOf) -> None:
    header = header_of("Llama-3.1-8B")
    plan = plan_load(header, EngineParams(), memory=ram(16))
    assert plan.flash_attention is False
    (notice,) = plan.notices
    longer = int(notice.message.split("--ctx ")[1].split()[0])
    asked = plan_load(header, EngineParams(n_ctx=longer), memory=ram(16))
    assert asked.flash_attention is True
    assert asked.n_ctx > plan.n_ctx


def test_a_longer_context_than_the_card_allows_beside_the_model_is_told_with_its_price(header_of: HeaderOf) -> None:
    for name in ("Qwen3-30B-A3B", "Llama-3.1-8B"):
        plan = plan_load(header_of(name), EngineParams(), [gpu(6)], memory=ram(64))
        notice = next(notice for notice in plan.notices if notice.code == "context_reduced")
        assert "less of the model on the GPU" in notice.message
        longer = int(notice.message.split("--ctx ")[1].split()[0])
        asked = plan_load(header_of(name), EngineParams(n_ctx=longer), [gpu(6)], memory=ram(64))
        assert asked.n_ctx == longer > plan.n_ctx


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_the_hint_of_a_refused_context_is_one_that_fits(header_of: HeaderOf, kv_type: KVType) -> None:
    header = header_of("Llama-3.1-8B")
    with pytest.raises(DoesNotFitError, match="131,072 tokens") as refused:
        plan_load(header, EngineParams(n_ctx=131072, kv_type=kv_type), memory=ram(8))
    assert refused.value.hint is not None
    fitting = int(refused.value.hint.split()[1])
    plan_load(header, EngineParams(n_ctx=fitting, kv_type=kv_type), memory=ram(8))
    with pytest.raises(DoesNotFitError):
        plan_load(header, EngineParams(n_ctx=fitting + 512, kv_type=kv_type), memory=ram(8))


def test_the_hint_of_refused_layers_is_a_number_that_fits(header_of: HeaderOf) -> None:
    header = header_of("Llama-3.1-8B")
    with pytest.raises(DoesNotFitError, match="33 layers") as refused:
        plan_load(header, EngineParams(n_ctx=8192, gpu_layers=33), [gpu(4)], memory=PLENTY)
    assert refused.value.hint is not None
    fitting = int(refused.value.hint.split()[1])
    assert plan_load(header, EngineParams(n_ctx=8192, gpu_layers=fitting), [gpu(4)], memory=PLENTY).gpu_layers > 0


def test_a_quantized_cache_makes_a_longer_context_fit(header_of: HeaderOf) -> None:
    header = header_of("Llama-3.1-8B")
    plain = plan_load(header, EngineParams(flash_attention=True), memory=ram(10))
    smaller = plan_load(header, EngineParams(kv_type="q8_0"), memory=ram(10))
    assert smaller.n_ctx > 1.5 * plain.n_ctx


def test_a_model_larger_than_ram_is_mapped_with_a_warning_or_refused(header_of: HeaderOf) -> None:
    header = header_of("Llama-3.1-70B")
    plan = plan_load(header, EngineParams(), memory=ram(32))
    assert plan.pages_from_disk
    assert "weights_exceed_memory" in codes(plan)
    with pytest.raises(DoesNotFitError, match=r"the model needs \d+"):
        plan_load(header, EngineParams(use_mmap=False), memory=ram(32))


def test_nothing_fits_is_refused_with_exit_code_4(header_of: HeaderOf) -> None:
    with pytest.raises(DoesNotFitError) as refused:
        plan_load(header_of("Llama-2-7B"), EngineParams(), memory=ram(0.5))
    assert refused.value.exit_code == 4


def test_a_context_longer_than_trained_is_told(header_of: HeaderOf) -> None:
    assert "context_beyond_training" in codes(
        plan_load(header_of("Llama-2-7B"), EngineParams(n_ctx=8192), memory=PLENTY)
    )


def test_a_machine_that_took_more_than_planned_gets_a_smaller_plan(header_of: HeaderOf) -> None:
    header = header_of("Llama-3.1-8B")
    first = plan_load(header, EngineParams(), [gpu(6)], memory=PLENTY)
    later = plan_load(header, EngineParams(), [gpu(6)], memory=PLENTY, correction=1.2)
    assert later.placement.gpus[0].total * 1.2 <= gpu(6).budget < first.placement.gpus[0].total * 1.2


def test_parallel_sequences_share_the_budget(header_of: HeaderOf) -> None:
    header = header_of("Llama-3.1-8B")
    one, four = (plan_load(header, EngineParams(n_parallel=n), memory=ram(12)) for n in (1, 4))
    assert four.n_ctx < one.n_ctx / 2


def test_a_running_state_is_planned_for_without_a_cache(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Mamba-2.8B"))
    placement = Planner(shape, EngineParams(), (), PLENTY).placement(512, 0)
    assert placement.ram.kv == 0
    assert placement.ram.state > 0
