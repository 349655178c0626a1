"""Promises of the table of choices and the advice drawn from it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from localrun.gguf import GGUFHeader
from localrun.hardware.devices import Device, Memory
from localrun.hardware.options import Version, advice, contexts, length, options, scaled
from localrun.hardware.shape import model_shape
from localrun.params import EngineParams

HeaderOf = Callable[[str], GGUFHeader]
GIB = 1 << 30
VERSIONS = [
    Version("Q2_K", 3_180_000_000),
    Version("Q3_K_M", 4_020_000_000),
    Version("Q4_K_M", 4_920_000_000),
    Version("Q5_K_M", 5_730_000_000),
    Version("Q6_K", 6_600_000_000),
    Version("Q8_0", 8_540_000_000),
    Version("F16", 16_070_000_000),
]
"""Llama-3.1-8B as its GGUF repositories have it."""


def ram(gib: float) -> Memory:
    return Memory(int(gib * GIB), int(gib * GIB))


@pytest.mark.parametrize("gib", [6, 8, 10, 12, 16, 24])
def test_the_advice_is_about_choices_that_fit(header_of: HeaderOf, gib: int) -> None:
    shape = model_shape(header_of("Llama-3.1-8B"))
    found = options(shape, VERSIONS, EngineParams(), (), ram(gib), lengths=contexts(131072))
    sentence = advice(found, 131072)
    good = [o for o in found if o.good]
    for choice in sentence.removeprefix("take ").split(" or "):
        version, _, where = choice.partition(" at ")
        assert any(o.version == version and length(o.n_ctx) == where.split(" ")[0] for o in good), sentence


def test_more_memory_advises_a_larger_version(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Llama-3.1-8B"))
    names = [version.name for version in VERSIONS]
    advised = []
    for gib in (5, 6, 8, 12, 24):
        found = options(shape, VERSIONS, EngineParams(), (), ram(gib), lengths=contexts(131072))
        advised.append(names.index(advice(found, 131072).split()[1]))
    assert advised == sorted(advised)
    assert advised[0] < advised[-1]


def test_a_long_context_is_a_choice_of_its_own(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Llama-3.1-8B"))
    found = options(shape, VERSIONS, EngineParams(), (), ram(10), lengths=contexts(131072))
    sentence = advice(found, 131072)
    assert " at 8k" in sentence
    assert " at 32k" in sentence


def test_a_card_too_small_for_any_version_leaves_layers_to_the_cpu(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Llama-3.1-8B"))
    card = Device("card", "gpu", total=3 * GIB, free=3 * GIB)
    found = options(shape, VERSIONS, EngineParams(), [card], ram(32), lengths=contexts(8192))
    assert "CPU" in advice(found, 8192)
    assert all(not option.good for option in found if option.weight_bytes > 3 * GIB)


def test_nothing_fits_is_said(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Llama-3.1-8B"))
    found = options(shape, VERSIONS, EngineParams(), (), ram(1), lengths=contexts(8192))
    assert advice(found, 8192) == "no version fits this machine: take a smaller model"


def test_another_version_keeps_the_cache_and_scales_the_weights(header_of: HeaderOf) -> None:
    shape = model_shape(header_of("Qwen3-30B-A3B"))
    half = scaled(shape, shape.weight_bytes // 2)
    assert half.weight_bytes == pytest.approx(shape.weight_bytes / 2, rel=0.001)
    assert half.layers[0].k_width == shape.layers[0].k_width


def test_contexts_end_with_the_trained_length() -> None:
    assert contexts(40960) == [2048, 4096, 8192, 16384, 32768, 40960]
    assert contexts(1024) == [1024]
    assert contexts(4096, [100]) == [100, 2048, 4096]
