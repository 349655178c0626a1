"""`localrun bench` as a user of the shell sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localrun.bench.figures import BenchResult, Figure
from localrun.cli.main import run
from localrun.gguf import fingerprint
from localrun.hardware.tuning import load_speed, load_tuning
from tests.cli.process import run as run_process
from tests.models import smollm2


def write_result(path: Path, tpot: float) -> Path:
    figures = [Figure("tpot/depth=512", "TPOT, depth 512", "s", (tpot, tpot * 1.01, tpot * 0.99), False, "tpot", 512)]
    result = BenchResult(
        suite="quick",
        machine={"description": "a machine"},
        model={"name": "m", "quantization": "Q4_0", "fingerprint": "f"},
        settings={},
        bandwidth=1e9,
        started="2026-01-01",
        figures=figures,
    )
    path.write_text(json.dumps(result.as_json()))
    return path


def test_two_results_are_compared_without_measuring(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    old, new = write_result(tmp_path / "old.json", 0.1), write_result(tmp_path / "new.json", 0.2)
    page = tmp_path / "page.html"
    assert run(["bench", "--compare", str(old), "--compare", str(new), "--html", str(page)]) == 0
    out = capfd.readouterr().out
    assert "TPOT, depth 512  100 ms → 200 ms  +100 %  worse" in out
    assert "What changed" in page.read_text()
    assert run(["bench", "--compare", str(new), "--compare", str(old), "--json"]) == 0
    changes = json.loads(capfd.readouterr().out)["comparison"]["changes"]
    assert [(change["real"], change["better"]) for change in changes] == [(True, True)]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--suite", "all"], 2, "quick, full, serve"),
        (["--rate", "0"], 2, "--rate"),
        (["--duration", "nan"], 2, "--duration"),
        (["--ttft-target", "-1"], 2, "--ttft-target"),
        (["--compare", "nothing.json"], 2, "nothing.json"),
        (["--compare", "{old}", "--tune"], 2, "exclude"),
        (["--compare", "{old}", "--compare", "{old}", "--compare", "{old}"], 2, "3 times"),
        (["./nothing.gguf"], 3, "nothing.gguf"),
        (["--threads", "0"], 2, "threads"),
        (["--threads", "x"], 2, "threads"),
    ],
)
def test_bad_input_is_one_line_and_the_right_exit_code(
    arguments: list[str], code: int, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    old = write_result(tmp_path / "old.json", 0.1)
    assert run(["bench", *(argument.format(old=old) for argument in arguments)]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert words in err


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    old = write_result(tmp_path / "old.json", 0.1)
    target = tmp_path / "no-such-folder" / "page.html"
    assert run(["bench", "--compare", str(old), "--compare", str(old), "--html", str(target)]) == 1
    assert "page.html could not be written" in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["old.json"]


@pytest.mark.model
@pytest.mark.slow
def test_a_real_model_is_measured_remembered_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALRUN_CTX", "512")  # leaves the long prompts out
    first = run_process("bench", smollm2(), "--json", timeout=300)
    assert first.code == 0, first.err
    names = {figure["name"] for figure in first.json["figures"]}
    assert {
        "load",
        "ttft/cold/prompt=128",
        "ttft/cached/prompt=128",
        "tpot/depth=128",
        "throughput/parallel=4",
    } <= names
    figures = {figure["name"]: figure for figure in first.json["figures"]}
    assert figures["ttft/cached/prompt=128"]["median"] < figures["ttft/cold/prompt=128"]["median"]
    assert first.json["machine"]["features"]
    assert load_speed(fingerprint(smollm2())) is not None
    (tmp_path / "first.json").write_bytes(first.out)
    second = run_process(
        "bench", smollm2(), "--suite", "serve", "--rate", "2", "--duration", "2", "--compare", tmp_path / "first.json",
        "--html", tmp_path / "page.html", timeout=300,
    )  # fmt: skip
    assert second.code == 0, second.err
    assert b"goodput at 2/s" in second.out
    assert b"stayed within the noise" in second.out
    assert "<svg" in (tmp_path / "page.html").read_text() or (tmp_path / "page.html").exists()


@pytest.mark.model
@pytest.mark.slow
def test_tuning_is_shown_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_process("bench", smollm2(), "--tune", "--json", timeout=300)
    assert done.code == 0, done.err
    assert done.json["remembered"] is True
    assert done.json["best"]["n_ubatch"] in (128, 256, 512, 1024)
    assert load_tuning(fingerprint(smollm2())) is not None
