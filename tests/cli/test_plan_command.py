"""`localrun plan` as a user of the shell sees it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from localrun.cli.app import build
from localrun.cli.main import run
from localrun.cli.settings import one_model
from localrun.errors import UsageError
from localrun.hardware.devices import Device, Memory
from tests.catalog.servers import hub_server
from tests.gguf.writer import write_gguf
from tests.hardware.shapes import BY_NAME, write_header

GIB = 1 << 30


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 16 GiB of RAM, no GPU, and a memory that reads 50 GB/s."""
    monkeypatch.setattr("localrun.hardware.devices.system_memory", lambda: Memory(16 * GIB, 14 * GIB))
    monkeypatch.setattr("localrun.hardware.planner.system_memory", lambda: Memory(16 * GIB, 14 * GIB))
    monkeypatch.setattr("localrun.hardware.bandwidth.measure_bandwidth", lambda: 50e9)
    monkeypatch.setattr("localrun.local.devices.gpu_is_compiled_in", lambda: False)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device("Test Card", "gpu", total=6 * GIB, free=6 * GIB, backend="CUDA")
    monkeypatch.setattr("localrun.local.devices.gpu_is_compiled_in", lambda: True)
    monkeypatch.setattr("localrun.local.devices.gpu_devices", lambda: [device])
    return device


@pytest.fixture
def llama(tmp_path: Path) -> str:
    return str(write_header(tmp_path, BY_NAME["Llama-3.1-8B"]))


def plan(*arguments: str) -> str:
    result = CliRunner().invoke(build("plan"), ["plan", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def plan_json(*arguments: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(plan(*arguments, "--json"))
    return value


def test_a_model_on_a_machine_without_a_gpu(llama: str) -> None:
    text = plan(llama)
    assert "llama, 8.0B parameters" in text
    assert "none that the engine sees" in text
    assert "KV f16" in text
    assert "tokens/s at depth 0" in text
    assert "note     the context is" in text
    assert text.splitlines()[-1].startswith("take ")


def test_json_holds_every_figure(llama: str) -> None:
    value = plan_json(llama, "--ctx", "8192")
    assert value["plan"]["ctx"] == 8192
    ram = value["plan"]["ram"]
    assert ram["kv"] == 8192 * 131072
    assert value["plan"]["total_bytes"] == sum(ram.values())
    at_most = {row["depth"]: row["tokens_per_second"] for row in value["plan"]["speed_at_most"]}
    assert at_most[0] == pytest.approx(50e9 / value["model"]["active_bytes"], rel=0.01)
    assert at_most[8192] < at_most[0]
    assert value["problem"] is None
    assert {(o["n_ctx"], o["kv_type"]) for o in value["options"]} >= {(8192, "f16"), (8192, "q8_0"), (32768, "q4_0")}


def test_a_card_takes_what_it_can(llama: str, card: Device) -> None:
    value = plan_json(llama)
    assert 0 < value["plan"]["gpu_layers"] <= 33
    assert value["machine"]["devices"][0]["name"] == "Test Card"
    assert sum(value["plan"]["gpus"][0].values()) <= card.budget
    assert value["plan"]["speed_at_most"] == []
    assert "layers on the GPU" in plan(llama)


def test_settings_of_the_environment_count(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALRUN_CTX", "2048")
    monkeypatch.setenv("LOCALRUN_KV_TYPE", "q8_0")
    value = plan_json(llama)
    assert value["plan"]["ctx"] == 2048
    assert value["plan"]["kv_type"] == "q8_0"
    assert {option["kv_type"] for option in value["options"]} == {"q8_0"}


def test_parallel_sequences_are_counted(llama: str) -> None:
    one, four = (plan_json(llama, "--ctx", "4096", "--parallel", n) for n in ("1", "4"))
    assert four["plan"]["ram"]["kv"] == 4 * one["plan"]["ram"]["kv"]


def test_what_does_not_fit_is_shown_and_ends_with_4(llama: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", llama, "--ctx", "131072"]) == 4
    out, err = capfd.readouterr()
    assert "fits     no" in out
    assert err.startswith("error: a context of 131,072 tokens needs")
    assert "hint: --ctx" in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["./nothing.gguf"], 3),
        (["no-such-model"], 3),
        (["smollm2:135m", "--offline"], 3),
        (["{llama}", "--ctx", "0"], 2),
        (["{llama}", "--kv-type", "q5_0"], 2),
        (["{llama}", "--parallel", "0"], 2),
    ],
)
def test_bad_input_is_one_line_and_the_right_exit_code(
    arguments: list[str], code: int, llama: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(Path(llama).parent / "empty"))
    assert run(["plan", *(argument.format(llama=llama) for argument in arguments)]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "Traceback" not in err


def test_a_model_of_the_hub_is_planned_with_all_its_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    small = replace(BY_NAME["Llama-3.2-1B"], name="small", layers=2, embd=256, heads=4, kv_heads=2, ff=512, vocab=1000)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with hub_server() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.files["/o/r/small-Q8_0.gguf"] = write_header(tmp_path, small).read_bytes()
        hub.files["/o/r/small-F16.gguf"] = bytes(3_000_000)
        assert run(["plan", "hf:o/r:Q8_0", "--json"]) == 0
        value = json.loads(capfd.readouterr().out)
        assert {option["version"] for option in value["options"]} == {"Q8_0", "F16"}
        assert value["model"]["here"] is False
        assert value["advice"].startswith("take F16 at ")
        assert run(["plan", "hf:o/r:Q8_0"]) == 0
        assert "the weights were not fetched" in capfd.readouterr().err
        assert not (tmp_path / "hub").exists()
        assert run(["plan", "hf:o/r:Q8_0", "--offline"]) == 3


def test_a_file_without_the_figures_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(write_gguf(tmp_path / "bare.gguf"))]) == 2
    assert "how many layers and heads" in capfd.readouterr().err


def test_a_file_that_is_no_model_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.gguf"
    path.write_text("<!DOCTYPE html>")
    assert run(["plan", str(path)]) == 2
    assert "page.gguf" in capfd.readouterr().err


def test_a_model_is_named_as_an_argument_or_as_an_option_and_never_two() -> None:
    assert one_model("a", None) == one_model(None, "a") == one_model("a", "a") == "a"
    assert one_model(None, None) is None
    with pytest.raises(UsageError, match="two models were given: a and b"):
        one_model("a", "b")
