"""Models come from the hub whole, checked and resumable, through its real client against a hub on loopback."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from localrun.catalog import resolve
from localrun.catalog.hub import fetch_checkpoint
from localrun.catalog.hub_cache import find_checkpoint, hub_cache_folder
from localrun.errors import FetchError, GatedModelError, IntegrityError, ModelNotFoundError, OfflineError
from localrun.gguf import known_sha256, read_header
from tests.catalog.conftest import Recorder
from tests.catalog.servers import Served
from tests.gguf.writer import write_shards

REPO = "/o/tiny-GGUF"
NAME = "hf:o/tiny-GGUF:Q4_0"


@pytest.fixture(autouse=True)
def repository(hub: Served, big_model: bytes) -> None:
    hub.files[f"{REPO}/tiny-Q4_0.gguf"] = big_model
    hub.files[f"{REPO}/tiny-Q8_0.gguf"] = big_model[:-1] + b"!"
    hub.files[f"{REPO}/README.md"] = b"# tiny"


def blobs(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.glob("models--*/blobs/*"))


def test_a_model_is_fetched_into_the_standard_cache(hub: Served, hub_cache: Path, big_model: bytes) -> None:
    model = resolve(NAME)
    assert model.path.is_relative_to(hub_cache / "models--o--tiny-GGUF" / "snapshots")
    assert model.path.read_bytes() == big_model
    assert model.name == model.source == NAME
    assert model.sha256 == hashlib.sha256(big_model).hexdigest()
    assert known_sha256(model.path, trust_name=False) == model.sha256, "it was hashed, not only named"
    assert (hub_cache / "models--o--tiny-GGUF" / "refs" / "main").exists()
    assert hub.bodies() == 1


def test_the_hubs_own_client_finds_what_we_fetched(hub: Served, hub_cache: Path) -> None:
    from huggingface_hub import try_to_load_from_cache

    path = resolve(NAME).path
    assert try_to_load_from_cache("o/tiny-GGUF", "tiny-Q4_0.gguf", cache_dir=hub_cache) == str(path)


def test_a_model_that_is_here_costs_no_request(hub: Served) -> None:
    path = resolve(NAME).path
    hub.requests.clear()
    assert resolve(NAME).path == path
    assert resolve(NAME, offline=True).path == path
    assert resolve("hf:o/tiny-GGUF").path == path
    assert hub.requests == []


def test_offline_makes_no_request_at_all(hub: Served) -> None:
    with pytest.raises(OfflineError, match="not on this machine") as caught:
        resolve(NAME, offline=True)
    assert "localrun pull" in (caught.value.hint or "")
    assert hub.requests == []


def test_the_hubs_own_offline_switch_is_obeyed(hub: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(OfflineError, match="HF_HUB_OFFLINE"):
        resolve(NAME)
    assert hub.requests == []


def test_a_split_model_is_fetched_whole(hub: Served, tmp_path: Path) -> None:
    for shard in write_shards(tmp_path, "big-Q6_K"):
        hub.files[f"/o/split-GGUF/Q6_K/{shard.name}"] = shard.read_bytes()
    model = resolve("hf:o/split-GGUF:Q6_K")
    assert len(read_header(model.path).shards) == 3
    hub.requests.clear()
    assert resolve("hf:o/split-GGUF/Q6_K/big-Q6_K-00002-of-00003.gguf").path == model.path
    assert hub.requests == []


def test_a_checkpoint_is_fetched_without_what_no_converter_needs(hub: Served, progress: Recorder) -> None:
    files = {
        "config.json": b"{}", "tokenizer.json": b'{"a": 1}', "chat_template.jinja": b"{{ x }}",
        "model-00001-of-00002.safetensors": b"1" * 1000, "model-00002-of-00002.safetensors": b"2" * 1000,
        "pytorch_model.bin": b"p", "consolidated.safetensors": b"c", "original/params.json": b"{}", "README.md": b"#",
    }  # fmt: skip
    for name, content in files.items():
        hub.files[f"/o/check/{name}"] = content
    folder = fetch_checkpoint("o/check", progress)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {n: files[n] for n in list(files)[:5]}
    assert find_checkpoint("o/check") == folder
    hub.requests.clear()
    assert fetch_checkpoint("o/check", progress) == folder
    assert not [path for method, path, _ in hub.requests if method == "GET" and "/resolve/" in path]


def test_a_repository_without_a_checkpoint_is_told(hub: Served, progress: Recorder) -> None:
    with pytest.raises(ModelNotFoundError, match="has no safetensors files"):
        fetch_checkpoint("o/tiny-GGUF", progress)
    assert find_checkpoint("o/tiny-GGUF") is None


def test_a_broken_connection_is_taken_up_again(hub: Served, big_model: bytes) -> None:
    hub.faults.cut_after, hub.faults.cuts_left = 2 << 20, 1
    assert resolve(NAME).path.read_bytes() == big_model
    assert hub.ranges == [f"bytes={2 << 20}-"]


def test_an_interrupted_download_is_resumed_by_the_next_run(
    hub: Served, hub_cache: Path, big_model: bytes, progress: Recorder
) -> None:
    progress.interrupt_at = 2 << 20
    with pytest.raises(KeyboardInterrupt):
        resolve(NAME, progress=progress)
    left = [p for p in hub_cache.glob("models--*/blobs/*") if p.name.endswith(".incomplete")]
    assert [p.stat().st_size for p in left] == [1 << 20]
    assert not list(hub_cache.glob("models--*/snapshots/*/*"))
    progress.interrupt_at = None
    assert resolve(NAME, progress=progress).path.read_bytes() == big_model
    assert hub.ranges == [f"bytes={1 << 20}-"]
    assert ("tiny-Q4_0.gguf", len(big_model), 1 << 20) in progress.transfers
    assert not any(name.endswith(".incomplete") for name in blobs(hub_cache))


def test_a_hub_that_fails_in_the_middle_leaves_a_beginning_to_resume(hub: Served, big_model: bytes) -> None:
    hub.faults.cut_after, hub.faults.cuts_left, hub.faults.status_after_cut = 2 << 20, 1, 500
    with pytest.raises(OfflineError, match="500"):
        resolve(NAME)
    hub.faults.status = None
    hub.requests.clear()
    assert resolve(NAME).path.read_bytes() == big_model
    assert hub.ranges == [f"bytes={2 << 20}-"]


def test_a_server_that_ignores_ranges_does_not_double_the_file(
    hub: Served, big_model: bytes, progress: Recorder
) -> None:
    progress.interrupt_at = 2 << 20
    with pytest.raises(KeyboardInterrupt):
        resolve(NAME, progress=progress)
    hub.faults.ignore_range = True
    assert resolve(NAME).path.read_bytes() == big_model


@pytest.mark.parametrize("size", [1 << 20, 64 << 20])
def test_a_damaged_beginning_is_thrown_away(
    hub: Served, hub_cache: Path, big_model: bytes, size: int, progress: Recorder
) -> None:
    folder = hub_cache / "models--o--tiny-GGUF" / "blobs"
    folder.mkdir(parents=True)
    (folder / f"{hashlib.sha256(big_model).hexdigest()}.incomplete").write_bytes(b"x" * size)
    assert resolve(NAME, progress=progress).path.read_bytes() == big_model
    assert any("damaged" in note for note in progress.notes) == (size < len(big_model))


def test_wrong_bytes_never_get_a_name(hub: Served, hub_cache: Path) -> None:
    hub.faults.corrupt = True
    with pytest.raises(IntegrityError, match="SHA-256"):
        resolve(NAME)
    assert blobs(hub_cache) == []
    assert not list(hub_cache.glob("models--*/snapshots/*/*"))


def test_a_body_of_another_size_never_gets_a_name(
    hub: Served, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.catalog import servers

    honest = servers._HubHandler.send_info

    def send_info(handler: servers._HubHandler, repo: str) -> None:
        hub.files[f"{REPO}/tiny-Q4_0.gguf"] += b"more"
        honest(handler, repo)
        hub.files[f"{REPO}/tiny-Q4_0.gguf"] = hub.files[f"{REPO}/tiny-Q4_0.gguf"][:-4]

    monkeypatch.setattr(servers._HubHandler, "send_info", send_info)
    with pytest.raises((IntegrityError, OfflineError)):
        resolve(NAME)
    assert not [name for name in blobs(hub_cache) if not name.endswith(".incomplete")]


def test_a_checksum_of_the_catalogue_counts_more_than_the_hubs(hub: Served, home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "models.toml").write_text(
        f'[models.pinned]\nsources = [{{ at = "{NAME}", sha256 = "{"0" * 64}" }}]\n'
    )
    with pytest.raises(IntegrityError, match="the catalogue expects"):
        resolve("pinned")
    assert hub.bodies() == 0


def test_a_gated_model_is_explained_and_a_token_opens_it(hub: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.gated = True
    with pytest.raises(GatedModelError, match="accepted its licence") as caught:
        resolve(NAME)
    assert f"{hub.url}/o/tiny-GGUF" in (caught.value.hint or "")
    assert "HF_TOKEN" in (caught.value.hint or "")
    monkeypatch.setenv("HF_TOKEN", "hf_bad")
    with pytest.raises(GatedModelError):
        resolve(NAME)
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    assert resolve(NAME).path.exists()


def test_a_private_or_missing_repository_has_near_matches(hub: Served) -> None:
    with pytest.raises(ModelNotFoundError, match="does not exist, or is private") as caught:
        resolve("hf:o/tinny-GGUF:Q4_0")
    assert caught.value.hint is not None
    hub.files["/o/tinysaurus-GGUF/x.gguf"] = b""
    with pytest.raises(ModelNotFoundError) as caught:
        resolve("hf:o/tinyx-GGUF")
    assert "hf:o/tiny-GGUF" in (caught.value.hint or "")


def test_a_missing_file_has_near_matches(hub: Served) -> None:
    with pytest.raises(ModelNotFoundError, match="no quantization") as caught:
        resolve("hf:o/tiny-GGUF:Q4_1")
    assert "did you mean: Q4_0" in (caught.value.hint or "")
    with pytest.raises(ModelNotFoundError, match="no file") as caught:
        resolve("hf:o/tiny-GGUF/tiny-Q4_O.gguf")
    assert "tiny-Q4_0.gguf" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, GatedModelError, "token"),
        (403, GatedModelError, "forbidden"),
        (404, FetchError, "404"),
        (429, FetchError, "slow down"),
        (503, OfflineError, "503"),
    ],
)
def test_every_refusal_is_explained(
    hub: Served, status: int, kind: type[FetchError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    hub.faults.status = status
    with pytest.raises(kind, match=words):
        resolve(NAME)


def test_a_full_disk_is_told_before_the_transfer(
    hub: Served, monkeypatch: pytest.MonkeyPatch, big_model: bytes
) -> None:
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage(1 << 30, 1 << 30, 1 << 20))
    with pytest.raises(
        FetchError, match=r"no space left for hf:o/tiny-GGUF/tiny-Q4_0\.gguf: 4 MB needed and 67 MB to spare, 1 MB free"
    ):
        resolve(NAME)
    assert hub.bodies() == 0


def test_a_cache_that_cannot_be_written_is_named(hub: Served, hub_cache: Path) -> None:
    hub_cache.parent.mkdir(parents=True)
    hub_cache.write_text("a file where a folder should be")
    with pytest.raises(FetchError, match=str(hub_cache)):
        resolve(NAME)


def test_a_hub_that_refuses_connections_is_told_at_once(no_hub: None) -> None:
    with pytest.raises(OfflineError, match=r"http://127\.0\.0\.1:9 cannot be reached"):
        resolve(NAME)


def test_two_at_once_fetch_it_once(hub: Served, big_model: bytes) -> None:
    paths: list[Path] = []
    notes: list[Recorder] = [Recorder(), Recorder()]
    hub.faults.hold_until = lambda: any(p.notes for p in notes)  # until the other one says that it waits
    threads = [threading.Thread(target=lambda p=p: paths.append(resolve(NAME, progress=p).path)) for p in notes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths[0] == paths[1]
    assert paths[0].read_bytes() == big_model
    assert hub.bodies() == 1
    assert sum(len(p.notes) for p in notes) == 1


def test_the_cache_is_where_the_client_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [
        {},
        {"HF_HOME": str(tmp_path / "h")},
        {"HF_HUB_CACHE": str(tmp_path / "c"), "HF_HOME": "/x"},
        {"HUGGINGFACE_HUB_CACHE": str(tmp_path / "d")},
        {"XDG_CACHE_HOME": str(tmp_path / "xdg")},
    ]
    program = "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"
    for variables in settings:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ)
            assert run.stdout.strip() == str(hub_cache_folder())
