"""Models that other tools have fetched are found and used where they lie, and never touched."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from localrun.catalog import find, local_models, resolve
from localrun.catalog.local import LocalModel
from localrun.catalog.remove import plan_removal
from localrun.errors import ModelNotFoundError, UsageError
from tests.gguf.writer import gguf_bytes, write_gguf, write_shards

MODEL = gguf_bytes()
DIGEST = hashlib.sha256(MODEL).hexdigest()
MODEL_LAYER = "application/vnd.ollama.image.model"


@pytest.fixture
def ollama(other_tools: Path) -> Path:
    folder = other_tools / ".ollama" / "models"
    (folder / "blobs").mkdir(parents=True)
    return folder


def add_ollama(
    folder: Path, name: str, *, content: bytes = MODEL, blob: bool = True, manifest: Any = None, size: int | None = None
) -> None:
    """A model as Ollama stores it, or (with `manifest`) a broken one."""
    digest = hashlib.sha256(content).hexdigest()
    if blob:
        (folder / "blobs" / f"sha256-{digest}").write_bytes(content)
    path = folder / "manifests" / "registry.ollama.ai" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    layer = {"mediaType": MODEL_LAYER, "digest": f"sha256:{digest}", "size": len(content) if size is None else size}
    other = {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "0" * 64, "size": 1}
    document = {"layers": [other, layer]} if manifest is None else manifest
    path.write_text(document if isinstance(document, str) else json.dumps(document))


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_model_of_ollama_is_found_by_its_name_there(ollama: Path) -> None:
    add_ollama(ollama, "library/tiny/1b")
    add_ollama(ollama, "someone/tiny/latest")
    before = everything(ollama)
    model = resolve("tiny:1b", offline=True)
    assert model.path == ollama / "blobs" / f"sha256-{DIGEST}"
    assert (model.name, model.source, model.sha256) == ("tiny:1b", "ollama", DIGEST)
    assert resolve("someone/tiny", offline=True).path == model.path
    assert everything(ollama) == before


def test_a_hub_model_that_ollama_has_fetched_is_found_by_its_hub_name(ollama: Path) -> None:
    add_ollama(ollama, "../hf.co/o/tiny-GGUF/Q4_K_M")
    assert resolve("hf:o/tiny-GGUF:Q4_K_M", offline=True).source == "ollama"


def test_the_folder_of_ollama_can_be_elsewhere(ollama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = ollama.rename(tmp_path / "moved")
    add_ollama(moved, "library/tiny/1b")
    assert find("tiny:1b") is None
    monkeypatch.setenv("OLLAMA_MODELS", str(moved))
    assert find("tiny:1b") is not None


def test_a_catalogue_model_that_ollama_has_is_not_fetched_again(ollama: Path) -> None:
    add_ollama(ollama, "library/qwen3/8b")
    model = resolve("qwen3:8b", offline=True)
    assert (model.source, model.draft) == ("ollama", "qwen3:0.6b")


def test_a_file_that_only_ollamas_engine_can_read_is_no_copy_of_a_catalogue_model(ollama: Path, tmp_path: Path) -> None:
    other = write_gguf(tmp_path / "x.gguf", {"general.architecture": "ollama-own"}).read_bytes()
    add_ollama(ollama, "library/qwen3/8b", content=other)
    assert find("qwen3:8b") is None


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ({"manifest": "{not json"}, "the manifest is damaged"),
        ({"manifest": ""}, "the manifest is damaged"),
        ({"manifest": []}, "it lists no layers"),
        ({"manifest": {"layers": "x"}}, "it lists no layers"),
        ({"manifest": {"layers": [1]}}, "it lists no layers"),
        ({"manifest": {"layers": []}}, "0 model files"),
        ({"manifest": {"layers": [{"mediaType": MODEL_LAYER}] * 2}}, "2 model files"),
        ({"manifest": {"layers": [{"mediaType": MODEL_LAYER, "digest": "sha256:../../etc"}]}}, "no SHA-256"),
        ({"manifest": " " * (2 << 20)}, "too large"),
        ({"blob": False}, "its file is missing"),
        ({"size": 5}, "instead of 5"),
    ],
)
def test_a_damaged_manifest_is_listed_with_its_reason_and_hides_nothing_else(
    ollama: Path, damage: dict[str, Any], problem: str
) -> None:
    add_ollama(ollama, "library/good/1b", content=MODEL + b"!")
    add_ollama(ollama, "library/bad/1b", **damage)
    models = {model.name: model for model in local_models()}
    assert models["good:1b"].problem is None
    assert problem in (models["bad:1b"].problem or "")
    with pytest.raises(ModelNotFoundError):
        resolve("bad:1b", offline=True)


def test_models_of_lm_studio_are_found_by_their_hub_names(other_tools: Path) -> None:
    folder = other_tools / ".lmstudio" / "models" / "o" / "tiny-GGUF"
    folder.mkdir(parents=True)
    path = write_gguf(folder / "tiny-Q4_K_M.gguf")
    (folder / "mmproj-F16.gguf").write_bytes(b"GGUF")
    before = everything(other_tools)
    for name in ("hf:o/tiny-GGUF", "hf:o/tiny-GGUF:Q4_K_M", "hf:o/tiny-GGUF/tiny-Q4_K_M.gguf"):
        assert resolve(name, offline=True).path == path
    assert local_models() == [LocalModel("hf:o/tiny-GGUF:Q4_K_M", (path,), path.stat().st_size, "lm-studio")]
    assert everything(other_tools) == before


def test_lm_studios_own_settings_are_followed(other_tools: Path, tmp_path: Path) -> None:
    (other_tools / ".lmstudio-home-pointer").write_text(str(tmp_path / "lms"))
    (tmp_path / "lms").mkdir()
    (tmp_path / "lms" / "settings.json").write_text(json.dumps({"downloadsFolder": str(tmp_path / "big-disk")}))
    (tmp_path / "big-disk" / "o" / "r").mkdir(parents=True)
    path = write_gguf(tmp_path / "big-disk" / "o" / "r" / "m-Q8_0.gguf")
    assert resolve("hf:o/r:Q8_0", offline=True).path == path


def test_a_catalogue_model_that_lm_studio_has_is_not_fetched_again(other_tools: Path) -> None:
    folder = other_tools / ".cache" / "lm-studio" / "models" / "bartowski" / "SmolLM2-135M-Instruct-GGUF"
    folder.mkdir(parents=True)
    path = write_gguf(folder / "SmolLM2-135M-Instruct-Q8_0.gguf")
    assert resolve("smollm2", offline=True).path == path


def test_split_models_are_one_and_incomplete_ones_none(other_tools: Path) -> None:
    folder = other_tools / ".lmstudio" / "models" / "o" / "r"
    folder.mkdir(parents=True)
    shards = write_shards(folder, "m-Q4_0")
    write_shards(folder, "n-Q8_0")[1].unlink()
    assert [model.files for model in local_models()] == [tuple(shards)]


def test_a_file_in_two_places_is_listed_once(other_tools: Path, hub_cache: Path) -> None:
    folder = other_tools / ".lmstudio" / "models" / "o" / "r"
    folder.mkdir(parents=True)
    path = write_gguf(folder / "m-Q8_0.gguf")
    snapshot = hub_cache / "models--o--r" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "m-Q8_0.gguf").symlink_to(path)
    (snapshot / "gone-Q8_0.gguf").symlink_to(folder / "nothing")
    assert [(model.name, model.place) for model in local_models()] == [("hf:o/r:Q8_0", "hub")]


def test_every_name_in_the_list_leads_to_its_file(other_tools: Path, hub_cache: Path) -> None:
    snapshot = hub_cache / "models--o--r" / "snapshots" / "abc"
    (snapshot / "sub").mkdir(parents=True)
    for number, name in enumerate(["a-Q8_0.gguf", "b-Q8_0.gguf", "a-Q4_0.gguf", "sub/plain.gguf"]):
        write_gguf(snapshot / name, {"general.name": str(number)})
    models = local_models()
    assert {m.name for m in models} == {
        "hf:o/r:Q4_0", "hf:o/r/a-Q8_0.gguf", "hf:o/r/b-Q8_0.gguf", "hf:o/r/sub/plain.gguf",
    }  # fmt: skip
    for model in models:
        assert resolve(model.name, offline=True).path == model.path


def test_the_snapshot_that_main_points_to_is_preferred(hub_cache: Path) -> None:
    for commit in ("aaa", "bbb", "ccc"):
        (hub_cache / "models--o--r" / "snapshots" / commit).mkdir(parents=True)
        write_gguf(hub_cache / "models--o--r" / "snapshots" / commit / "m-Q8_0.gguf")
    (hub_cache / "models--o--r" / "refs").mkdir()
    (hub_cache / "models--o--r" / "refs" / "main").write_text("bbb")
    assert resolve("hf:o/r", offline=True).path.parent.name == "bbb"


def test_the_quantization_of_a_nameless_blob_is_read_from_its_header(ollama: Path) -> None:
    add_ollama(ollama, "library/tiny/1b")
    add_ollama(ollama, "library/broken/1b", content=b"GGUF")
    assert {m.name: m.quantization for m in local_models()} == {"tiny:1b": "F32", "broken:1b": None}


def test_what_others_have_fetched_is_never_deleted(ollama: Path, other_tools: Path) -> None:
    add_ollama(ollama, "library/tiny/1b")
    folder = other_tools / ".lmstudio" / "models" / "o" / "r"
    folder.mkdir(parents=True)
    own = write_gguf(folder / "m-Q8_0.gguf")
    before = everything(other_tools)
    for name, owner in (("tiny:1b", "Ollama"), ("hf:o/r", "LM Studio"), (str(own), "a file of yours")):
        with pytest.raises(UsageError, match=owner):
            plan_removal(name)
    assert everything(other_tools) == before
