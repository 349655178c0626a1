"""`localrun serve`, `ps` and `--engine local`, as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localrun.cli import main
from localrun.paths import runtime_dir
from localrun.remote.neighbours import Announcement, announce, running_servers
from tests.serve.conftest import until


def run(*arguments: str, text_in: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "localrun", *arguments],
        capture_output=True,
        text=True,
        input=text_in,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        timeout=120,
    )


@contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "localrun", "serve", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.model
def test_a_resident_model_serves_scripts_and_ends_when_told(smollm2: Path, home: Path) -> None:
    arguments = ["-m", str(smollm2), "--port", "0", "--ctx", "512", "--parallel", "2", "--threads", "1"]
    with serving(*arguments) as server:
        assert server.stderr is not None
        ready = server.stderr.readline()
        assert "SmolLM2" in ready
        assert "http://127.0.0.1:" in ready
        [announced] = running_servers()
        assert announced.socket is not None
        assert Path(announced.socket).stat().st_mode & 0o777 == 0o600
        answer = run("generate", "Say hello", "--engine", "local", "-n", "5", "--temperature", "0", "--json")
        assert answer.returncode == 0, answer.stderr
        result = json.loads(answer.stdout)
        assert result["usage"]["completion_tokens"] == 5
        assert result["warnings"] == []
        chat = run(
            "chat", "--plain", "--engine", "local", "--offline", "--temperature", "0", "-n", "5", text_in="Say hello\n"
        )
        assert chat.returncode == 0, chat.stderr
        assert result["text"] in chat.stdout
        [told] = json.loads(run("ps", "--json").stdout)
        assert [model["context"] for model in told["models"]] == [512]
        assert "SmolLM2" in run("ps").stdout
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    assert running_servers() == []
    assert list(runtime_dir().iterdir()) == []
    answer = run("generate", "Hi", "--engine", "local")
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: no server of localrun runs on this machine\nhint: ")


def test_what_is_wrong_is_said_before_anything_is_loaded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<!DOCTYPE html>")
    for arguments, code, message in [
        (["--host", "0.0.0.0"], 2, "can be reached by other machines, and no API key is set"),
        (["--api-key-env", "NOT_THERE"], 2, "names NOT_THERE, which is not set"),
        (["-m", str(page)], 2, "page.gguf"),
        (["-m", str(tmp_path / "none.gguf")], 3, "does not exist"),
        (["--port", "99999"], 2, "99999"),
    ]:
        assert main.run(["serve", *arguments]) == code
        told = capfd.readouterr()
        assert told.out == ""
        assert told.err.startswith("error: ")
        assert message in told.err


def test_ps_without_a_server_says_how_to_start_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["ps"]) == 0
    told = capfd.readouterr()
    assert told.out == ""
    assert "localrun serve" in told.err
    assert main.run(["ps", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == []


def test_an_announcement_of_a_process_that_has_ended_is_removed() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    file = announce(Announcement(ended.pid, "http://127.0.0.1:1", None, 0.0))
    assert running_servers() == []
    until(lambda: not file.exists())
