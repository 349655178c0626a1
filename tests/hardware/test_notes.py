"""Promises of what is remembered about this machine: tuning, speeds, corrections, bandwidth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localrun.gguf import fingerprint
from localrun.hardware import bandwidth
from localrun.hardware.correction import learn, memory_correction
from localrun.hardware.machine import Machine, this_machine
from localrun.hardware.notes import note_path, read_note, write_note
from localrun.hardware.tuning import (
    MeasuredSpeed,
    TunedSettings,
    load_speed,
    load_tuning,
    save_speed,
    save_tuning,
    tuned_for,
)
from localrun.paths import default_paths
from tests.gguf.writer import write_gguf

TUNED = TunedSettings(flash_attention=False, threads=2, threads_prefill=4, n_ubatch=256)
SPEED = MeasuredSpeed(decode_tps=101.5, depth=512, prefill_tps=400, prompt=512)
OTHER = Machine("Plan9", "a CPU", 1, 1, 1, "engine 0")


def test_settings_and_speed_of_a_model_are_found_again() -> None:
    assert load_tuning("f" * 32) is None
    assert save_tuning("f" * 32, TUNED)
    assert save_speed("f" * 32, SPEED)
    assert load_tuning("f" * 32) == TUNED
    assert load_speed("f" * 32) == SPEED
    assert load_tuning("e" * 32) is None


def test_another_machine_or_engine_knows_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    save_tuning("f" * 32, TUNED)
    monkeypatch.setattr("localrun.hardware.tuning.this_machine", lambda: OTHER)
    assert load_tuning("f" * 32) is None
    save_speed("f" * 32, SPEED)
    assert load_tuning("f" * 32) is None, "what the first machine found is not kept under the second one's name"


def test_settings_are_found_by_the_models_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    assert tuned_for(tmp_path / "nothing.gguf") is None, "where nothing was measured, no file is opened"
    assert tuned_for(path) is None
    save_tuning(fingerprint(path), TUNED)
    assert tuned_for(path) == TUNED
    assert tuned_for(write_gguf(tmp_path / "other.gguf", {"general.name": "other"})) is None


@pytest.mark.parametrize(
    "tuned", [{}, {"flash_attention": 1}, "x", None, {"flash_attention": True, "threads": "2"}, []], ids=repr
)
def test_a_note_of_another_form_reads_as_unknown(tuned: object) -> None:
    write_note("model-" + "f" * 32, {"machine": this_machine().identity, "tuned": tuned})
    assert load_tuning("f" * 32) is None


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00"])
def test_a_damaged_note_reads_as_empty_and_can_be_replaced(content: str) -> None:
    note_path("machine").parent.mkdir(parents=True)
    note_path("machine").write_text(content)
    assert read_note("machine") == {}
    assert write_note("machine", {"a": 1})
    assert json.loads(note_path("machine").read_text()) == {"a": 1}


def test_a_cache_that_cannot_be_written_is_no_error(home: Path) -> None:
    home.write_text("a file where the folder should be")
    assert not save_tuning("f" * 32, TUNED)


def test_the_correction_moves_slowly_and_stays_within_bounds() -> None:
    assert memory_correction() == 1.0
    learn(1000, 1010)
    assert memory_correction() == 1.0, "one percent off is close enough"
    learn(1000, 1200)
    first = memory_correction()
    assert 1.0 < first < 1.2
    for _ in range(20):
        learn(1000, 100_000)
    assert memory_correction() == pytest.approx(1.5, abs=0.02)
    for _ in range(20):
        learn(1000, 1)
    assert memory_correction() == pytest.approx(0.9, abs=0.02)
    assert learn(0, 5) == memory_correction()


def test_bandwidth_is_measured_once_and_only_its_best_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = iter([20e9, 10e9, 30e9])
    monkeypatch.setattr(bandwidth, "measure_bandwidth", lambda: next(figures))
    monkeypatch.setattr(bandwidth, "_is_busy", lambda: False)
    assert bandwidth.memory_bandwidth(measure=False) is None
    assert bandwidth.memory_bandwidth() == 20e9
    assert bandwidth.memory_bandwidth() == 20e9
    assert bandwidth.memory_bandwidth(again=True) == 20e9
    assert bandwidth.memory_bandwidth(again=True) == 30e9
    assert bandwidth.memory_bandwidth(measure=False) == 30e9


def test_a_busy_machine_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "measure_bandwidth", lambda: 5e9)
    monkeypatch.setattr(bandwidth, "_is_busy", lambda: True)
    assert bandwidth.memory_bandwidth() == 5e9
    assert bandwidth.memory_bandwidth(measure=False) is None


def test_a_real_measurement_is_plausible() -> None:
    assert 1e8 < bandwidth.measure_bandwidth(32 << 20, rounds=1) < 1e13


def test_the_identity_of_a_machine_is_stable_and_its_own() -> None:
    assert this_machine().identity == this_machine().identity
    assert this_machine().identity != OTHER.identity
    assert str(this_machine().cores) in str(this_machine())


def test_a_folder_that_may_not_be_looked_into_costs_the_settings_alone(tmp_path: Path, modes_count: None) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path)
    assert save_tuning(fingerprint(path), TUNED)
    assert tuned_for(path) == TUNED
    default_paths().tuning.chmod(0o000)
    found = tuned_for(path)
    default_paths().tuning.chmod(0o700)
    assert found is None
