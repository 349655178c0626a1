"""`localrun doctor` as a user of the shell sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localrun.cli import doctor as command
from localrun.cli.main import run
from localrun.doctor.finding import Check, Finding
from tests.cli.process import run as run_process


def with_findings(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    checks = [Check("x", lambda: findings)]
    monkeypatch.setattr(command, "_checks", lambda **options: checks)


def test_all_is_well_is_exit_code_0(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    with_findings(monkeypatch, Finding("python", "ok", "3.11"), Finding("gpu", "info", "none"))
    assert run(["doctor"]) == 0
    out = capfd.readouterr().out
    assert out == "ok    python     3.11\nnote  gpu        none\n\nall is well\n"


@pytest.mark.parametrize("status", ["warning", "error"])
def test_something_to_mend_is_exit_code_1_with_the_command(
    status: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with_findings(monkeypatch, Finding("gpu", status, "unused", "pip install it", {"a": 1}))  # type: ignore[arg-type]
    assert run(["doctor"]) == 1
    out = capfd.readouterr().out
    assert "fix: pip install it" in out
    assert out.endswith("1 thing to mend\n")
    assert run(["doctor", "--json"]) == 1
    assert json.loads(capfd.readouterr().out) == {
        "well": False,
        "findings": [
            {"subject": "gpu", "status": status, "text": "unused", "fix": "pip install it", "facts": {"a": 1}}
        ],
    }


def test_a_broken_configuration_does_not_keep_the_doctor_from_working(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text("nonsense = 1\n")
    before = sorted(path for path in home.rglob("*"))
    done = run_process(
        "doctor", "--json", "--offline", "--no-self-test", HOME=str(tmp_path), HF_HOME=str(tmp_path / "hf"), timeout=60
    )
    assert done.code == 1
    subjects = {finding["subject"]: finding for finding in done.json["findings"]}
    assert "nonsense" in subjects["settings"]["text"]
    assert {"python", "packages", "engine", "memory", "disk", "hub", "terminal", "sessions", "cache"} <= set(subjects)
    assert sorted(path for path in home.rglob("*")) == before, "nothing was changed"
    assert done.err == ""
