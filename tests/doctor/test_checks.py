"""Promises of the checks: each finds its fault, none hangs, none changes anything."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localrun.doctor import engine, network, resources, selftest, software, stores, surface
from localrun.doctor.engine import Gpu
from localrun.doctor.finding import Check, Finding, run_checks
from localrun.engine.kv_store import KVStore
from localrun.errors import InputError
from localrun.hardware.devices import Memory
from localrun.paths import default_paths
from localrun.store import Store
from tests.gguf.writer import write_gguf
from tests.models import smollm2


def one(findings: Iterable[Finding], subject: str | None = None) -> Finding:
    found = [finding for finding in findings if subject in (None, finding.subject)]
    assert len(found) == 1, found
    return found[0]


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


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    folder = tmp_path / "hub" / "models--o--r" / "snapshots" / "c"
    folder.mkdir(parents=True)
    return folder


def test_models_are_counted_and_copies_found(hub_cache: Path) -> None:
    assert [finding.status for finding in stores.look_at_stores()] == ["warning"]
    write_gguf(hub_cache / "a-Q4_0.gguf")
    (hub_cache / "b-Q8_0.gguf").write_bytes((hub_cache / "a-Q4_0.gguf").read_bytes())
    write_gguf(hub_cache / "c-F16.gguf", {"general.name": "Tiny Text"})
    found = list(stores.look_at_stores())
    assert "Hugging Face cache: 3 models" in found[0].text
    copies = [finding for finding in found if "2 times" in finding.text]
    assert len(copies) == 1
    assert copies[0].fix is not None
    assert copies[0].fix.startswith("localrun rm hf:o/r")


def test_sessions_are_judged_without_touching_them() -> None:
    assert one(stores.look_at_sessions()).text == "none yet"
    path = default_paths().sessions_db
    store = Store.open(path)
    store.create_session({})
    store.close()
    before = {file.name: file.stat().st_mtime_ns for file in path.parent.iterdir()}
    finding = one(stores.look_at_sessions())
    assert finding.status == "ok"
    assert finding.facts == {"chats": 1}
    assert {file.name: file.stat().st_mtime_ns for file in path.parent.iterdir()} == before


def test_an_open_database_is_judged_too() -> None:
    store = Store.open(default_paths().sessions_db)
    store.create_session({})
    assert one(stores.look_at_sessions()).status == "ok"
    store.close()


def test_a_damaged_database_is_told_with_the_command_that_saves_it() -> None:
    path = default_paths().sessions_db
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database" * 1000)
    finding = one(stores.look_at_sessions())
    assert finding.status == "error"
    assert finding.fix is not None
    assert ".recover" in finding.fix
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE session (id TEXT PRIMARY KEY, text TEXT)")
    connection.executemany("INSERT INTO session VALUES (?, ?)", [(str(i), "x" * 500) for i in range(500)])
    connection.commit()
    connection.close()
    content = bytearray(path.read_bytes())
    content[8192:40000] = b"\xff" * (40000 - 8192)
    path.write_bytes(content)
    assert one(stores.look_at_sessions()).status == "error"


@pytest.mark.parametrize("closed", ["file", "folder"])
def test_a_database_that_cannot_be_written_is_not_well(closed: str, modes_count: None) -> None:
    path = default_paths().sessions_db
    store = Store.open(path)
    store.create_session({})
    store.close()
    place = path if closed == "file" else path.parent
    mode = place.stat().st_mode
    place.chmod(mode & ~0o222)
    finding = one(stores.look_at_sessions())
    place.chmod(mode)
    assert finding.status == "error"
    assert finding.text == f"1 chats, sound, but nothing can be saved: {place} cannot be written"
    assert finding.fix == f"chmod u+rw{'x' if closed == 'folder' else ''} {place}"


def test_a_place_where_no_database_can_be_made_is_not_well(home: Path, modes_count: None) -> None:
    home.mkdir(mode=0o500)
    finding = one(stores.look_at_sessions())
    assert finding.status == "error"
    assert finding.text == f"chats cannot be saved: {home} cannot be written"
    assert finding.fix == f"chmod u+rwx {home}"


@pytest.mark.parametrize(
    ("folder", "cost"),
    [
        ("cache", "models cannot be fetched, prompts are not kept"),
        ("cache/kv", "prompts are not kept"),
        ("cache/kv/0123", "prompts of one model are not kept"),
        ("cache/tuning", "measurements are not remembered"),
        ("cache/models", "models cannot be fetched"),
        ("run", "servers are not announced"),
    ],
)
def test_each_folder_that_may_not_be_used_is_told_with_what_it_costs(
    home: Path, modes_count: None, folder: str, cost: str
) -> None:
    place = home / folder
    place.mkdir(parents=True)
    place.chmod(0o000)
    found = list(stores.look_at_caches())
    place.chmod(0o700)
    told = [finding for finding in found if not finding.is_well]
    assert [finding.text for finding in told if cost in finding.text]
    assert told[0].text.startswith(f"{place} cannot be written: ")
    assert told[0].fix == f"chmod u+rwx {place}"


def test_models_in_a_folder_that_cannot_be_read_are_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = home / "cache" / "models"
    scandir = os.scandir

    def refuse(path: object) -> object:
        if path == models:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", refuse)
    first = next(iter(stores.look_at_stores()))
    assert first.status == "warning"
    assert first.text == f"{models} cannot be read: models in it are not found"


def test_a_configuration_that_may_not_be_read_is_told_with_the_right_command(home: Path, modes_count: None) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text("model = [")
    (home / "config" / "config.toml").chmod(0o000)
    finding = one(surface.look_at_settings())
    assert finding.fix == f"chmod u+rw {home / 'config' / 'config.toml'}"


def test_caches_are_measured_and_damaged_notes_named() -> None:
    assert one(stores.look_at_caches()).text == "empty"
    folder = default_paths().tuning
    folder.mkdir(parents=True)
    (folder / "memory.json").write_text("{")
    warning, summary = stores.look_at_caches()
    assert warning.status == "warning"
    assert warning.fix == f"rm {folder / 'memory.json'}"
    assert "tuning" in summary.text


def test_a_damaged_block_of_the_prefix_cache_is_named() -> None:
    root = default_paths().kv_blocks
    cache = KVStore(root, "model", block_tokens=4, budget_bytes=1 << 20)
    keys = cache.keys([1, 2, 3, 4, 5, 6, 7, 8])
    for number, key in enumerate(keys):
        cache.save(key, [1 + 4 * number, 2 + 4 * number, 3 + 4 * number, 4 + 4 * number], b"payload")
    cache.close()
    assert one(stores.look_at_caches()).is_well
    block = next(root.glob("*/*.kv"))
    block.write_bytes(block.read_bytes()[:-1])
    warning, _ = stores.look_at_caches()
    assert warning.fix == f"rm {block}"


# self-test ------------------------------------------------------------------------------------------------------------


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
