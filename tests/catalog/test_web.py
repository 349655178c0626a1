"""Models come from plain web servers whole, checked and resumable."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from localrun.catalog import local_models, resolve
from localrun.errors import FetchError, GatedModelError, IntegrityError, ModelNotFoundError, OfflineError
from tests.catalog.conftest import Recorder
from tests.catalog.servers import Served

HALF = 2 << 20


@pytest.fixture
def url(web: Served, big_model: bytes) -> str:
    web.files["/d/tiny.gguf"] = big_model
    return f"{web.url}/d/tiny.gguf"


def files(home: Path) -> list[str]:
    return sorted(p.name for p in (home / "cache" / "models").rglob("*") if p.is_file() and p.suffix != ".lock")


def broken_off(url: str, web: Served) -> None:
    """A first try that ends in the middle."""
    web.faults.cut_after, web.faults.cuts_left, web.faults.status_after_cut = HALF, 1, 503
    with pytest.raises(OfflineError, match="503"):
        resolve(url)
    web.faults.status = None
    web.requests.clear()


def test_a_model_is_fetched_and_found_again(url: str, web: Served, big_model: bytes, progress: Recorder) -> None:
    model = resolve(url, progress=progress)
    assert model.path.read_bytes() == big_model
    assert model.path.name == "tiny.gguf"
    assert [m.name for m in local_models()] == [url]
    assert progress.transfers == [("tiny.gguf", len(big_model), 0)]
    web.requests.clear()
    assert resolve(url, offline=True).path == model.path
    assert web.requests == []


def test_offline_makes_no_request(url: str, web: Served) -> None:
    with pytest.raises(OfflineError):
        resolve(url, offline=True)
    assert web.requests == []


def test_a_cut_is_taken_up_in_the_same_run(url: str, web: Served, big_model: bytes) -> None:
    web.faults.cut_after, web.faults.cuts_left = HALF, 1
    assert resolve(url).path.read_bytes() == big_model
    assert web.ranges == [f"bytes={HALF}-"]


def test_a_server_that_always_cuts_is_given_up_and_what_came_is_kept(url: str, web: Served, home: Path) -> None:
    web.faults.cut_after = 100_000
    with pytest.raises(OfflineError, match="broke off: 400000 of 4196032 bytes") as caught:
        resolve(url)
    assert "kept" in (caught.value.hint or "")
    assert files(home) == ["tiny.gguf.part", "tiny.gguf.part.json"]


def test_the_next_run_goes_on_where_the_last_one_stopped(
    url: str, web: Served, home: Path, big_model: bytes, progress: Recorder
) -> None:
    broken_off(url, web)
    assert files(home) == ["tiny.gguf.part", "tiny.gguf.part.json"]
    assert resolve(url, progress=progress).path.read_bytes() == big_model
    assert web.ranges == [f"bytes={HALF}-"]
    assert progress.transfers == [("tiny.gguf", len(big_model), HALF)]
    assert files(home) == ["tiny.gguf", "tiny.gguf.source.json"]


def test_ctrl_c_leaves_a_beginning_to_resume(url: str, web: Served, big_model: bytes, progress: Recorder) -> None:
    progress.interrupt_at = HALF
    with pytest.raises(KeyboardInterrupt):
        resolve(url, progress=progress)
    progress.interrupt_at = None
    web.requests.clear()
    assert resolve(url, progress=progress).path.read_bytes() == big_model
    assert web.ranges == [f"bytes={progress.transfers[-1][2]}-"]


def test_a_whole_answer_to_a_range_request_starts_over(url: str, web: Served, big_model: bytes) -> None:
    broken_off(url, web)
    web.faults.ignore_range = True
    assert resolve(url).path.read_bytes() == big_model


@pytest.mark.parametrize("ignore_if_range", [False, True])
def test_a_file_that_changed_in_between_starts_over(
    url: str, web: Served, big_model: bytes, ignore_if_range: bool
) -> None:
    broken_off(url, web)
    newer = big_model[:-1] + b"!"
    web.files["/d/tiny.gguf"] = newer
    web.faults.ignore_if_range = ignore_if_range
    assert resolve(url).path.read_bytes() == newer


def test_a_file_that_shrank_in_between_starts_over(url: str, web: Served, big_model: bytes) -> None:
    from tests.gguf.writer import gguf_bytes

    broken_off(url, web)
    web.files["/d/tiny.gguf"] = gguf_bytes()
    web.faults.ignore_if_range = True
    assert resolve(url).path.read_bytes() == gguf_bytes()


def test_without_a_validator_a_beginning_is_never_continued(url: str, web: Served, big_model: bytes) -> None:
    web.etags["/d/tiny.gguf"] = 'W/"weak"'
    broken_off(url, web)
    assert resolve(url).path.read_bytes() == big_model
    assert web.ranges == []


def test_a_checksum_in_the_url_is_checked(url: str, web: Served, home: Path, big_model: bytes) -> None:
    digest = hashlib.sha256(big_model).hexdigest()
    assert resolve(f"{url}#sha256={digest}").sha256 == digest
    with pytest.raises(IntegrityError, match="SHA-256"):
        resolve(f"{url}#sha256={'0' * 64}")
    assert files(home) == ["tiny.gguf", "tiny.gguf.source.json"]


def test_a_web_page_is_never_taken_for_a_model(web: Served, home: Path) -> None:
    web.files["/m.gguf"] = b"<!DOCTYPE html><title>Please log in</title>"
    with pytest.raises(IntegrityError, match="an HTML page"):
        resolve(f"{web.url}/m.gguf")
    assert files(home) == []


def test_a_file_cut_short_at_its_source_is_refused(url: str, web: Served, home: Path, big_model: bytes) -> None:
    web.files["/d/tiny.gguf"] = big_model[:-1000]
    with pytest.raises(IntegrityError, match="is cut short: it needs"):
        resolve(url)
    assert files(home) == []


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, GatedModelError, "needs permission"),
        (403, GatedModelError, "needs permission"),
        (404, ModelNotFoundError, "does not exist"),
        (429, FetchError, "asks to wait for 30 s"),
        (500, OfflineError, "out of order"),
        (418, FetchError, "418"),
    ],
)
def test_every_refusal_is_explained(
    url: str, web: Served, home: Path, status: int, kind: type[ModelNotFoundError], words: str
) -> None:
    web.faults.status, web.faults.retry_after = status, "30"
    with pytest.raises(kind, match=words):
        resolve(url)
    assert files(home) == []


def test_a_server_that_refuses_connections_is_told_at_once() -> None:
    with pytest.raises(OfflineError, match="cannot be reached"):
        resolve("http://127.0.0.1:9/m.gguf")


def test_a_network_without_an_answer_is_given_up_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from localrun.catalog.reach import why_unreachable

    asked, release = threading.Event(), threading.Event()

    def hang(address: object, timeout: float) -> None:
        asked.set()
        release.wait(10)
        raise OSError("too late")

    monkeypatch.setattr("socket.create_connection", hang)
    assert "no answer from x.org" in (why_unreachable("https://x.org", limit_s=0.05) or "")
    assert asked.is_set()
    release.set()


def test_a_proxy_is_what_has_to_be_reachable(web: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from localrun.catalog.reach import why_unreachable

    monkeypatch.setenv("https_proxy", web.url)
    assert why_unreachable("https://no-such-host.invalid") is None
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert why_unreachable("https://no-such-host.invalid") is not None


def test_a_full_disk_is_told_before_the_transfer(
    url: str, web: Served, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage(1 << 30, 1 << 30, 0))
    with pytest.raises(FetchError, match=r"no space left for http://127\.0\.0\.1:\d+/d/tiny\.gguf: 4 MB needed"):
        resolve(url)
    assert not [name for name in files(home) if name.endswith(".gguf")]


def test_a_disk_that_fills_up_during_the_transfer_keeps_what_came(
    url: str, home: Path, progress: Recorder, monkeypatch: pytest.MonkeyPatch, big_model: bytes
) -> None:
    import errno

    def fill(done: int) -> None:
        if done >= HALF:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(progress, "update", fill)
    with pytest.raises(FetchError, match="no space left for") as caught:
        resolve(url, progress=progress)
    assert "kept" in (caught.value.hint or "")
    assert files(home) == ["tiny.gguf.part", "tiny.gguf.part.json"]
    assert resolve(url).path.read_bytes() == big_model


def test_credentials_in_the_url_are_sent_and_not_shown(web: Served, big_model: bytes) -> None:
    web.files["/m.gguf"] = big_model
    secret = web.url.replace("http://", "http://me:pass@") + "/m.gguf"
    assert resolve(secret).path.exists()
    web.faults.status = 404
    with pytest.raises(ModelNotFoundError) as caught:
        resolve(secret + "?key=1")
    assert "pass" not in caught.value.message
    assert "key" not in caught.value.message


def test_two_urls_never_share_a_file(web: Served, big_model: bytes) -> None:
    web.files["/a/m.gguf"] = big_model
    web.files["/b/m.gguf"] = big_model[:-1] + b"?"
    assert resolve(f"{web.url}/a/m.gguf").path.read_bytes() != resolve(f"{web.url}/b/m.gguf").path.read_bytes()
