"""Promises of the search for the best settings, on a machine that is only described."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localrun.bench import tune as tuning
from localrun.bench.speed import Setting, measure_speed
from localrun.bench.tune import search, tune
from localrun.gguf import fingerprint
from localrun.hardware.tuning import load_tuning
from localrun.llama.model import LlamaModel
from localrun.params import EngineParams
from tests.models import smollm2

START = Setting(flash_attention=False, threads=4, threads_prefill=4, n_ubatch=512)
VARIED: list[tuple[str, str, list[Any]]] = [
    ("flash_attention", "decode", [True]),
    ("threads", "decode", [2, 3, 8]),
    ("threads_prefill", "prefill", [2, 8]),
    ("n_ubatch", "prefill", [128, 256, 1024]),
]


def machine(noise: float = 0.0, seed: int = 1) -> Callable[[Setting, str], float]:
    """Fastest with 3 threads for decoding, 8 for prompts, batches of 256, without flash attention."""
    chance = random.Random(seed)

    def measure(setting: Setting, kind: str) -> float:
        if kind == "decode":
            speed = {2: 80, 3: 110, 4: 100, 8: 60}[setting.threads] * (0.8 if setting.flash_attention else 1)
        else:
            speed = {2: 200, 4: 400, 8: 500}[setting.threads_prefill] * {128: 0.9, 256: 1.1, 512: 1, 1024: 1}[
                setting.n_ubatch
            ]
        return speed * chance.uniform(1 - noise, 1 + noise)

    return measure


def test_the_best_settings_are_found() -> None:
    found = search(START, machine(), VARIED, deadline=float("inf"))
    assert found.best == Setting(flash_attention=False, threads=3, threads_prefill=8, n_ubatch=256)
    assert found.complete
    assert len(found.trials) == 9


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_a_few_percent_does_not_lead_astray(seed: int) -> None:
    found = search(START, machine(noise=0.02, seed=seed), VARIED, deadline=float("inf"))
    assert (found.best.threads, found.best.threads_prefill) == (3, 8)
    assert not found.best.flash_attention


def test_what_makes_no_difference_is_left_as_it_is() -> None:
    found = search(START, lambda setting, kind: 100.0, VARIED, deadline=float("inf"))
    assert found.best == START


def test_a_disturbance_that_strikes_both_changes_nothing() -> None:
    slow = iter(range(10_000))
    found = search(START, lambda s, k: machine()(s, k) / (1 + next(slow) // 6 % 3), VARIED, deadline=float("inf"))
    assert found.best.threads == 3


def test_the_search_ends_in_time_and_keeps_what_it_has() -> None:
    now = 0.0

    def measure(setting: Setting, kind: str) -> float:
        nonlocal now
        now += 1
        return machine()(setting, kind)

    found = search(START, measure, VARIED, deadline=15.0, clock=lambda: now)
    assert not found.complete
    assert now <= 15 + 2
    assert found.best.threads_prefill in (4, 8)


def test_what_the_user_has_set_is_not_varied() -> None:
    names = [name for name, _, _ in tuning.candidates(START, EngineParams(threads=2, flash_attention=True))]
    assert names == ["n_ubatch"]
    quantized = tuning.candidates(Setting(kv_type="q8_0", flash_attention=True), EngineParams(kv_type="q8_0"))
    assert "flash_attention" not in [name for name, _, _ in quantized]


@pytest.mark.model
def test_a_real_model_is_tuned_and_its_settings_are_found_again() -> None:
    found = tune(smollm2(), EngineParams(threads=1), limit_s=1.0)
    assert found.trials
    assert all(trial.tps > 0 for trial in found.trials)
    assert found.remembered
    assert load_tuning(fingerprint(smollm2())) == found.settings


@pytest.mark.model
def test_speed_is_measured_with_a_warm_up_and_repeats() -> None:
    model = LlamaModel.load(smollm2())
    try:
        speed = measure_speed(model, Setting(), n_prompt=32, n_decode=4, depth=48, repeats=2)
    finally:
        model.close()
    assert len(speed.prefill) == len(speed.decode) == 2
    assert speed.prefill_tps > speed.decode_tps > 0


def test_no_tuning_is_known_of_a_model_that_was_never_tuned(tmp_path: Path) -> None:
    assert load_tuning("0" * 32) is None
