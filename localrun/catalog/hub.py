"""Fetches models from the Hugging Face hub through its own client, into its standard cache.

The client does tokens, mirrors, proxies, errors and the cache's layout. It has no resume from one run to the next (a
broken download is deleted), so the bytes go through its `http_get` into `<checksum>.incomplete` in the cache's `blobs`
folder, which survives; the finished, checked blob is then put in place by the client itself.
Invariant: a blob in the cache has the SHA-256 in its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localrun.catalog.choice import choose
from localrun.catalog.hub_cache import hub_cache_folder, hub_endpoint, hub_is_forbidden, repo_folder
from localrun.catalog.hub_errors import hub_errors
from localrun.catalog.progress import Progress, transfer
from localrun.catalog.reach import unreachable, why_unreachable
from localrun.catalog.references import HubReference
from localrun.catalog.storage import check_room, checked_sha256, disk_errors, one_at_a_time
from localrun.errors import IntegrityError, ModelNotFoundError, OfflineError

_TIMEOUT_S = 10.0
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RemoteFile:
    name: str
    size: int
    etag: str
    """The SHA-256 for large files, else a Git hash: the name of the blob in the cache."""
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Repository:
    """What the hub tells about a repository: its files at one commit."""

    reference: HubReference
    endpoint: str
    api: Any
    """The client's `HfApi`."""
    commit: str
    files: dict[str, RemoteFile]


def fetch_from_hub(reference: HubReference, sha256: str | None, progress: Progress) -> Path:
    """Fetch what is missing of the model into the hub's cache; the path of its (first) file.

    Raises `OfflineError` where the hub cannot be reached, `GatedModelError`, `ModelNotFoundError` with near matches,
    `IntegrityError`, or `FetchError`. An interrupted transfer is kept and resumed by the next call.
    """
    repository = look_up(reference)
    names = choose(reference, repository.files)
    expected = sha256 if len(names) == 1 else None
    paths = [_fetch_file(repository, repository.files[name], expected, progress) for name in names]
    return paths[0]


def fetch_checkpoint(repo: str, progress: Progress) -> Path:
    """Fetch what is missing of a checkpoint (weights, configuration, tokenizer) into the hub's cache; its folder.

    Raises the same errors as `fetch_from_hub`, and `ModelNotFoundError` for a repository without safetensors files.
    """
    repository = look_up(HubReference(repo))
    files = [file for name, file in repository.files.items() if is_checkpoint_file(name)]
    if not any(file.name.endswith(".safetensors") for file in files):
        raise ModelNotFoundError(f"hf:{repo} has no safetensors files", hint="name a repository with a checkpoint")
    paths = [_fetch_file(repository, file, None, progress) for file in files]
    return paths[0].parent


def is_checkpoint_file(name: str) -> bool:
    """Whether a converter needs this file; copies of the weights in other forms are left out."""
    if "/" in name or name.startswith("consolidated"):
        return False
    return name.endswith((".safetensors", ".json", ".jinja", ".model")) or name == "merges.txt"


def look_up(reference: HubReference) -> Repository:
    """Ask the hub for the files of a repository: one request."""
    endpoint = hub_endpoint()
    if hub_is_forbidden():
        raise OfflineError("the hub is forbidden by HF_HUB_OFFLINE", hint="unset it to fetch models")
    if (reason := why_unreachable(endpoint)) is not None:
        raise unreachable(
            f"hf:{reference.repo} is not on this machine, and the hub at {endpoint}",
            reason,
            variables="HTTPS_PROXY or HF_ENDPOINT",
        )
    from huggingface_hub import HfApi
    from huggingface_hub.utils.logging import set_verbosity_error

    # Its warnings about retries would mix with our progress; its errors are raised.
    set_verbosity_error()  # type: ignore[no-untyped-call]
    api = HfApi(endpoint=endpoint, library_name="localrun")
    with hub_errors(reference, endpoint, api):
        info = api.model_info(reference.repo, revision="main", files_metadata=True, timeout=_TIMEOUT_S)
    files = {file.name: file for file in map(_remote_file, info.siblings or ())}
    return Repository(reference, endpoint, api, info.sha or "main", files)


def _remote_file(sibling: Any) -> RemoteFile:
    """From a `RepoSibling` of the client."""
    lfs = sibling.lfs
    if lfs is None:
        return RemoteFile(sibling.rfilename, sibling.size or 0, sibling.blob_id or "", None)
    return RemoteFile(sibling.rfilename, lfs.size, lfs.sha256, lfs.sha256)


def _fetch_file(repository: Repository, file: RemoteFile, sha256: str | None, progress: Progress) -> Path:
    """Fetch one file unless its blob is here, and let the client link it into the snapshot; the path there."""
    from huggingface_hub import hf_hub_download

    repo, endpoint = repository.reference.repo, repository.endpoint
    what = f"hf:{repo}/{file.name}"
    if sha256 is not None and file.sha256 is not None and sha256 != file.sha256:
        raise IntegrityError(
            f"{what} has the SHA-256 {file.sha256} on the hub, the catalogue expects {sha256}",
            hint="the file was replaced there; name it as hf:… yourself if you trust it",
        )
    with disk_errors(what, hub_cache_folder()), hub_errors(repository.reference, endpoint, repository.api):
        _ensure_blob(repository, file, progress)
        path = hf_hub_download(
            repo, file.name, cache_dir=hub_cache_folder(), endpoint=endpoint, etag_timeout=_TIMEOUT_S,
            library_name="localrun", tqdm_class=_bar_class(progress),
        )  # fmt: skip
    return Path(path)


def _ensure_blob(repository: Repository, file: RemoteFile, progress: Progress) -> None:
    folder = repo_folder(repository.reference.repo)
    blob = folder / "blobs" / file.etag
    if not file.etag or blob.exists():
        return
    blob.parent.mkdir(parents=True, exist_ok=True)
    # The same lock as the client's own, so that both can work side by side.
    lock = hub_cache_folder() / ".locks" / folder.name / f"{file.etag}.lock"
    with one_at_a_time(lock, f"hf:{repository.reference.repo}/{file.name}", progress):
        if not blob.exists():
            _fetch_blob(repository, file, blob, progress)


def _fetch_blob(repository: Repository, file: RemoteFile, blob: Path, progress: Progress) -> None:
    """Transfer, check and name one blob; a damaged beginning left by an earlier run is thrown away once."""
    what = f"hf:{repository.reference.repo}/{file.name}"
    partial = blob.with_name(blob.name + ".incomplete")
    resumed = partial.stat().st_size if partial.exists() else 0
    if resumed > file.size:
        partial.unlink()
        resumed = 0
    check_room(blob.parent, file.size - resumed, what)
    _transfer(repository, file, partial, progress)
    try:
        checked_sha256(partial, file.sha256, file.size, what, progress)
    except IntegrityError:
        partial.unlink()
        if not resumed:
            raise
        progress.note("what an earlier run had left was damaged: starting over")
        _transfer(repository, file, partial, progress)
        try:
            checked_sha256(partial, file.sha256, file.size, what, progress)
        except IntegrityError:
            partial.unlink()
            raise
    partial.replace(blob)


def _transfer(repository: Repository, file: RemoteFile, partial: Path, progress: Progress) -> None:
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # documented, not in __all__

    # The client hands over whole chunks only: what has arrived of one is lost when the connection breaks.
    constants.DOWNLOAD_CHUNK_SIZE = _CHUNK_BYTES
    resumed = partial.stat().st_size if partial.exists() else 0
    with partial.open("ab") as stream, transfer(progress, file.name.rsplit("/", 1)[-1], file.size, resumed):
        http_get(
            # The commit instead of `main`: what arrives belongs to the checksum even if somebody uploads meanwhile.
            hf_hub_url(repository.reference.repo, file.name, revision=repository.commit, endpoint=repository.endpoint),
            stream,
            resume_size=resumed,
            expected_size=file.size,
            headers={**build_hf_headers(library_name="localrun"), "Accept-Encoding": "identity"},
            tqdm_class=_bar_class(progress),
        )


def _bar_class(progress: Progress) -> Any:
    """The part of tqdm's interface that the client uses for a download, on top of our progress."""

    class Bar:
        def __init__(self, *, initial: int = 0, **_: object) -> None:
            self.done = initial

        def update(self, n: float = 1) -> None:
            self.done += int(n)
            progress.update(self.done)

        def close(self) -> None:
            return

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            return

    return Bar
