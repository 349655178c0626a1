"""What the user typed becomes a file, or an error that helps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from localrun.catalog import find, resolve
from localrun.catalog.resolve import require
from localrun.errors import ModelFileError, ModelNotFoundError, OfflineError, UsageError
from tests.gguf.writer import write_gguf


@pytest.mark.parametrize("name", ["mödel 日本 (1).gguf", "-x.gguf", "a:b%20c.gguf"])
def test_a_path_is_itself_whatever_it_looks_like(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / name)
    model = resolve(str(path), offline=True)
    assert (model.path, model.name, model.source) == (path, name.removesuffix(".gguf"), "file")
    monkeypatch.chdir(tmp_path)
    assert resolve(f"./{name}").path == Path(name)


def test_a_missing_path_has_near_matches_beside_it(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model-q4.gguf")
    with pytest.raises(ModelNotFoundError, match="does not exist") as caught:
        resolve(str(tmp_path / "model-q5.gguf"))
    assert "model-q4.gguf" in (caught.value.hint or "")
    with pytest.raises(ModelNotFoundError):
        resolve(str(tmp_path / "no-folder" / "m.gguf"))


def test_a_path_that_cannot_be_looked_at_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="too long"):
        resolve("./" + "x" * 5000 + ".gguf")
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    with pytest.raises(ModelFileError, match="symbolic links"):
        resolve(str(loop))


def test_a_directory_is_refused_and_what_is_in_it_is_told(tmp_path: Path) -> None:
    write_gguf(tmp_path / "inside.gguf")
    with pytest.raises(ModelFileError, match="is a folder") as caught:
        resolve(f"{tmp_path}/")
    assert "inside.gguf" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("smolm2:135m", "smollm2:135m"),
        ("o/r", "hf:o/r"),
        ("no such model", "list --catalog"),
        ("x" * 5000, "list --catalog"),
    ],
)
def test_an_unknown_name_is_not_found_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(ModelNotFoundError, match="is known") as caught:
        resolve(name)
    assert hint in (caught.value.hint or "")


def test_what_is_not_here_is_none_an_error_or_offline() -> None:
    assert find("smollm2:135m") is None
    with pytest.raises(ModelNotFoundError, match="is not on this machine") as caught:
        require("smollm2")
    assert "localrun pull smollm2:135m" in (caught.value.hint or "")
    with pytest.raises(OfflineError):
        resolve("smollm2", offline=True)
    with pytest.raises(UsageError):
        find("hf:")


def test_a_model_that_is_here_is_found_without_any_http_client(home: Path, hub_cache: Path) -> None:
    snapshot = hub_cache / "models--bartowski--SmolLM2-135M-Instruct-GGUF" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    write_gguf(snapshot / "SmolLM2-135M-Instruct-Q8_0.gguf")
    program = (
        "import sys; from localrun.catalog import resolve; resolve('smollm2:135m');"
        "print(sorted({'huggingface_hub', 'httpx', 'urllib.request', 'http.client', 'numpy', 'subprocess', 'filelock',"
        " 'socket'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
