"""Promises of the checks: each finds its fault, none hangs, none changes anything."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localrun.doctor import engine, network, resources, selftest, software, surface
from localrun.doctor.engine import Gpu
from localrun.doctor.finding import Check, Finding, run_checks
from localrun.errors import InputError
from localrun.hardware.devices import Memory
from localrun.paths import default_paths
from tests.doctor.findings import one
from tests.gguf.writer import write_gguf
from tests.models import smollm2


def facts(**more: Any) -> dict[str, Any]:
    return {"backends": ["CPU"], "devices": [], "features": "", **more}


# running --------------------------------------------------------------------------------------------------------------


def test_a_check_that_hangs_is_left_behind_and_told() -> None:
    release = threading.Event()

    def hang() -> Iterator[Finding]:
        yield Finding("slow", "ok", "begun")
        release.wait(30)

    checks = [Check("slow", hang, limit_s=0.1), Check("next", lambda: [Finding("next", "ok", "fine")])]
    started = time.perf_counter()
    found = list(run_checks(checks))
    release.set()
    assert [(f.subject, f.status) for f in found] == [("slow", "ok"), ("slow", "error"), ("next", "ok")]
    assert "hangs" in found[1].text
    assert time.perf_counter() - started < 10


def test_a_check_that_fails_is_a_finding_and_stops_nobody() -> None:
    def fail() -> Iterator[Finding]:
        raise InputError("the value is 3", hint="make it 4")

    def crash() -> Iterator[Finding]:
        raise ZeroDivisionError("by zero")

    found = list(run_checks([Check("a", fail), Check("b", crash)]))
    assert found[0].text.endswith("the value is 3")
    assert found[0].fix == "make it 4"
    assert "ZeroDivisionError" in found[1].text
    assert not any(finding.is_well for finding in found)


# software -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "requirement", "verdict"),
    [
        ("0.3.36", "llama-cpp-python<0.3.37,>=0.3.36", True),
        ("0.3.37", "llama-cpp-python<0.3.37,>=0.3.36", False),
        ("2.0", "numpy>=1.26,<3", True),
        ("1.9.5", "numpy>=1.26,<3", False),
        ("4.25.0", "jsonschema[format-nongpl]<5,>=4.25", True),
        ("15.0.0rc1", "rich>=14,<16", True),
        ("1.0", "x", True),
    ],
)
def test_versions_are_judged_by_their_numbers(found: str, requirement: str, verdict: bool) -> None:
    assert software.satisfies(found, requirement) == verdict


def test_a_missing_or_foreign_package_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "requires", lambda name: ["no-such-package>=1", "numpy>=99", 'x ; extra == "serve"'])
    missing, old = software.look_at_packages()
    assert missing.status == "error"
    assert missing.fix is not None
    assert missing.fix.endswith("-m pip install 'no-such-package>=1'")
    assert old.status == "warning"


def test_this_environment_is_well() -> None:
    assert all(finding.is_well for finding in software.look_at_python())
    assert all(finding.is_well for finding in software.look_at_packages())


def test_a_rebuild_names_this_python_and_the_backend() -> None:
    command = engine.rebuild_for("CUDA")
    assert command.startswith('CMAKE_ARGS="-DGGML_CUDA=on" ')
    assert sys.executable in command
    assert "llama-cpp-python>=0.3.36,<0.3.37" in command


# engine ---------------------------------------------------------------------------------------------------------------


def test_a_card_that_the_engine_was_not_built_for_is_told_with_the_command() -> None:
    finding = one(engine.judge_gpus(facts(), [Gpu("NVIDIA GeForce RTX 4090", "CUDA")]))
    assert finding.status == "warning"
    assert "RTX 4090" in finding.text
    assert finding.fix is not None
    assert "-DGGML_CUDA=on" in finding.fix


def test_a_backend_without_a_device_is_the_drivers_fault() -> None:
    finding = one(engine.judge_gpus(facts(backends=["CUDA", "CPU"]), [Gpu("NVIDIA A2", "CUDA")]))
    assert finding.status == "error"
    assert "driver" in finding.text


def test_a_card_in_use_is_well_and_a_crowded_one_is_not() -> None:
    device = {"name": "A2", "kind": "gpu", "backend": "CUDA", "total": 16 * 10**9, "free": 15 * 10**9}
    assert one(engine.judge_gpus(facts(devices=[device]), [Gpu("A2", "CUDA")])).status == "ok"
    crowded = {**device, "free": 10**9}
    assert one(engine.judge_gpus(facts(devices=[crowded]), [Gpu("A2", "CUDA")])).status == "warning"


def test_a_machine_without_a_card_has_nothing_to_mend() -> None:
    assert one(engine.judge_gpus(facts(), [])).is_well


def test_an_instruction_set_that_is_not_used_is_told() -> None:
    finding = one(engine.judge_features("AVX = 1 | AVX2 = 0 |", {"avx", "avx2", "fma"}))
    assert finding.status == "warning"
    assert "AVX2, FMA" in finding.text
    assert one(engine.judge_features("AVX = 1 | AVX2 = 1 | FMA = 1", {"avx", "avx2", "fma"})).is_well


def test_the_real_engine_tells_what_it_is() -> None:
    found = list(engine.look_at_engine())
    assert found[0].status == "ok"
    assert "CPU" in found[0].facts["backends"]
    assert {finding.subject for finding in found} >= {"engine", "gpu", "cpu"}


def test_an_engine_that_cannot_be_loaded_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "probe_engine", lambda: (None, "loading it ended the process with signal 4"))
    finding = one(engine.look_at_engine())
    assert finding.status == "error"
    assert "signal 4" in finding.text
    assert finding.fix is not None
    assert "--force-reinstall" in finding.fix


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("OMP_WAIT_POLICY", "passive", "warning"),
        ("OMP_WAIT_POLICY", "active", "warning"),
        ("GOMP_SPINCOUNT", "30000000000", "warning"),
        ("OMP_NUM_THREADS", "4", "info"),
        ("OMP_NUM_THREADS", "", "ok"),
    ],
)
def test_settings_of_openmp(name: str, value: str, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, value)
    assert one(engine.look_at_openmp()).status == status


# resources ------------------------------------------------------------------------------------------------------------


def test_little_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "system_memory", lambda: Memory(8 * 10**9, 10**9))
    assert one(resources.look_at_memory(), "memory").status == "warning"
    monkeypatch.setattr(resources, "system_memory", lambda: Memory(8 * 10**9, 7 * 10**9))
    assert one(resources.look_at_memory(), "memory").status == "ok"


def test_a_nearly_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"total": 10**12, "free": 10**9, "used": 0})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    assert {finding.status for finding in resources.look_at_disk()} == {"warning"}


def test_the_load_of_this_machine_is_looked_at_without_a_verdict_on_it() -> None:
    assert one(resources.look_at_load()).subject == "load"


# network --------------------------------------------------------------------------------------------------------------


def test_a_hub_out_of_reach_matters_to_those_without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert one(network.look_at_hub(offline=False, model_is_here=True)).status == "info"
    assert one(network.look_at_hub(offline=False, model_is_here=False)).status == "warning"
    assert one(network.look_at_hub(offline=True, model_is_here=False)).status == "info"


def test_a_token_is_found_and_never_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_TOKEN_PATH", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    assert one(network.look_at_token()).status == "info"
    (tmp_path / "token").write_text("hf_secret")
    assert str(tmp_path / "token") in one(network.look_at_token()).text
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    finding = one(network.look_at_token())
    assert finding.status == "ok"
    assert "secret" not in repr(finding)


# terminal and settings ------------------------------------------------------------------------------------------------


def test_each_setting_is_shown_with_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    file = default_paths().config_file
    file.parent.mkdir(parents=True)
    file.write_text("ctx = 4096\n")
    monkeypatch.setenv("LOCALRUN_TEMPERATURE", "0.5")
    finding = one(surface.look_at_settings())
    assert finding.status == "ok"
    assert f"ctx = 4096 (from {file})" in finding.text
    assert "temperature = 0.5 (from LOCALRUN_TEMPERATURE)" in finding.text


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("LOCALRUN_THREADS", "many", "LOCALRUN_THREADS"),
        ("LOCALRUN_KV_TYPE", "q5", "q5"),
        ("LOCALRUN_TEMPERATURE", "-1", "temperature"),
        ("LOCALRUN_THREDS", "2", "no setting"),
    ],
)
def test_a_variable_without_sense_is_told(
    variable: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    bad = [finding for finding in surface.look_at_settings() if not finding.is_well]
    assert bad
    assert any(words in finding.text for finding in bad)


def test_a_configuration_file_that_cannot_be_read_is_told() -> None:
    file = default_paths().config_file
    file.parent.mkdir(parents=True)
    file.write_text("ctx = \n")
    finding = one(surface.look_at_settings())
    assert finding.status == "error"
    assert str(file) in finding.text


def test_the_terminal_is_described() -> None:
    assert one(surface.look_at_terminal()).subject == "terminal"


# stores ---------------------------------------------------------------------------------------------------------------


def test_without_a_model_the_self_test_says_how_to_get_one() -> None:
    finding = one(selftest.look_at_an_answer(None, "smollm2:135m"))
    assert finding.is_well
    assert finding.fix == "localrun pull smollm2:135m"


@pytest.mark.parametrize(("name", "words"), [("nope", "no model 'nope' is known"), ("", "the settings do not tell")])
def test_a_name_that_nobody_knows_is_not_to_be_pulled(name: str, words: str) -> None:
    finding = one(selftest.look_at_an_answer(None, name))
    assert words in finding.text
    assert "pull" not in (finding.fix or "")


def test_a_model_that_cannot_answer_is_told(tmp_path: Path) -> None:
    finding = one(selftest.look_at_an_answer(write_gguf(tmp_path / "tiny.gguf"), "tiny"))
    assert finding.status == "error"
    assert "exit code" in finding.text


@pytest.mark.model
def test_a_real_model_answers_and_leaves_nothing_behind(home: Path) -> None:
    finding = one(selftest.look_at_an_answer(smollm2(), "smollm2"))
    assert finding.status in ("ok", "warning"), finding
    assert finding.facts["decode_tps"] > 0
    assert not home.exists()
