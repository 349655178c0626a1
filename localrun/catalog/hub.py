"""Fetches models from the Hugging Face hub through its own client, into its standard cache.

The client does tokens, mirrors, proxies, errors and the cache's layout. It has no resume from one run to the next (a
broken download is deleted), so the bytes go through its `http_get` into `<checksum>.incomplete` in the cache's `blobs`
folder, which survives; the finished, checked blob is then put in place by the client itself.
Invariant: a blob in the cache has the SHA-256 in its name.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localrun.catalog.choice import choose
from localrun.catalog.hub_cache import hub_cache_folder, hub_endpoint, hub_is_forbidden, repo_folder
from localrun.catalog.progress import Progress, transfer
from localrun.catalog.reach import why_unreachable
from localrun.catalog.references import HubReference
from localrun.catalog.storage import check_room, checked_sha256, disk_errors, one_at_a_time
from localrun.errors import FetchError, GatedModelError, IntegrityError, ModelNotFoundError, OfflineError

_TIMEOUT_S = 10.0
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _RemoteFile:
    name: str
    size: int
    etag: str
    """The SHA-256 for large files, else a Git hash: the name of the blob in the cache."""
    sha256: str | None


def fetch_from_hub(reference: HubReference, sha256: str | None, progress: Progress) -> Path:
    """Fetch what is missing of the model into the hub's cache; the path of its (first) file.

    Raises `OfflineError` where the hub cannot be reached, `GatedModelError`, `ModelNotFoundError` with near matches,
    `IntegrityError`, or `FetchError`. An interrupted transfer is kept and resumed by the next call.
    """
    endpoint = hub_endpoint()
    if hub_is_forbidden():
        raise OfflineError("the hub is forbidden by HF_HUB_OFFLINE", hint="unset it to fetch models")
    if (reason := why_unreachable(endpoint)) is not None:
        raise OfflineError(f"the hub at {endpoint} cannot be reached: {reason}")
    from huggingface_hub import HfApi
    from huggingface_hub.utils.logging import set_verbosity_error

    set_verbosity_error()  # type: ignore[no-untyped-call]  # its warnings about retries would mix with our progress; its errors are raised
    api = HfApi(endpoint=endpoint, library_name="localrun")
    with _hub_errors(reference, endpoint, api):
        info = api.model_info(reference.repo, revision="main", files_metadata=True, timeout=_TIMEOUT_S)
    files = {f.name: f for f in map(_remote_file, info.siblings or ())}
    wanted = [files[name] for name in choose(reference, files)]
    paths = []
    for file in wanted:
        what = f"hf:{reference.repo}/{file.name}"
        with disk_errors(what, hub_cache_folder()), _hub_errors(reference, endpoint, api):
            expected = sha256 if len(wanted) == 1 else None
            paths.append(_fetch_file(reference.repo, file, info.sha or "main", endpoint, expected, progress))
    return paths[0]


def fetch_checkpoint(repo: str, progress: Progress) -> Path:
    """Fetch what is missing of a checkpoint (weights, configuration, tokenizer) into the hub's cache; its folder.

    Raises the same errors as `fetch_from_hub`, and `ModelNotFoundError` for a repository without safetensors files.
    """
    endpoint, reference = hub_endpoint(), HubReference(repo)
    if hub_is_forbidden():
        raise OfflineError("the hub is forbidden by HF_HUB_OFFLINE", hint="unset it to fetch models")
    if (reason := why_unreachable(endpoint)) is not None:
        raise OfflineError(f"the hub at {endpoint} cannot be reached: {reason}")
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint, library_name="localrun")
    with _hub_errors(reference, endpoint, api):
        info = api.model_info(repo, revision="main", files_metadata=True, timeout=_TIMEOUT_S)
    files = [file for file in map(_remote_file, info.siblings or ()) if is_checkpoint_file(file.name)]
    if not any(file.name.endswith(".safetensors") for file in files):
        raise ModelNotFoundError(f"hf:{repo} has no safetensors files", hint="name a repository with a checkpoint")
    paths = []
    for file in files:
        with disk_errors(f"hf:{repo}/{file.name}", hub_cache_folder()), _hub_errors(reference, endpoint, api):
            paths.append(_fetch_file(repo, file, info.sha or "main", endpoint, None, progress))
    return paths[0].parent


def is_checkpoint_file(name: str) -> bool:
    """Whether a converter needs this file; copies of the weights in other forms are left out."""
    if "/" in name or name.startswith("consolidated"):
        return False
    return name.endswith((".safetensors", ".json", ".jinja", ".model")) or name == "merges.txt"


def _remote_file(sibling: Any) -> _RemoteFile:
    """From a `RepoSibling` of the client."""
    lfs = sibling.lfs
    if lfs is None:
        return _RemoteFile(sibling.rfilename, sibling.size or 0, sibling.blob_id or "", None)
    return _RemoteFile(sibling.rfilename, lfs.size, lfs.sha256, lfs.sha256)


def _fetch_file(
    repo: str, file: _RemoteFile, commit: str, endpoint: str, sha256: str | None, progress: Progress
) -> Path:
    from huggingface_hub import hf_hub_download

    what = f"hf:{repo}/{file.name}"
    if sha256 is not None and file.sha256 is not None and sha256 != file.sha256:
        raise IntegrityError(
            f"{what} has the SHA-256 {file.sha256} on the hub, the catalogue expects {sha256}",
            hint="the file was replaced there; name it as hf:… yourself if you trust it",
        )
    blobs = repo_folder(repo) / "blobs"
    blob = blobs / file.etag
    # The same lock as the client's own, so that both can work side by side.
    lock = hub_cache_folder() / ".locks" / repo_folder(repo).name / f"{file.etag}.lock"
    if file.etag and not blob.exists():
        blobs.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(lock, what, progress):
            if not blob.exists():
                _fetch_blob(repo, file, commit, endpoint, blob, progress)
    path = hf_hub_download(
        repo, file.name, cache_dir=hub_cache_folder(), endpoint=endpoint, etag_timeout=_TIMEOUT_S,
        library_name="localrun", tqdm_class=_bar_class(progress),
    )  # fmt: skip
    return Path(path)


def _fetch_blob(repo: str, file: _RemoteFile, commit: str, endpoint: str, blob: Path, progress: Progress) -> None:
    """Transfer, check and name one blob; a damaged beginning left by an earlier run is thrown away once."""
    what = f"hf:{repo}/{file.name}"
    partial = blob.with_name(blob.name + ".incomplete")
    resumed = partial.stat().st_size if partial.exists() else 0
    if resumed > file.size:
        partial.unlink()
        resumed = 0
    check_room(blob.parent, file.size - resumed, what)
    _transfer(repo, file, commit, endpoint, partial, progress)
    try:
        checked_sha256(partial, file.sha256, file.size, what, progress)
    except IntegrityError:
        partial.unlink()
        if not resumed:
            raise
        progress.note("what an earlier run had left was damaged: starting over")
        _transfer(repo, file, commit, endpoint, partial, progress)
        try:
            checked_sha256(partial, file.sha256, file.size, what, progress)
        except IntegrityError:
            partial.unlink()
            raise
    partial.replace(blob)


def _transfer(repo: str, file: _RemoteFile, commit: str, endpoint: str, partial: Path, progress: Progress) -> None:
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # documented, not in __all__

    # The client hands over whole chunks only: what has arrived of one is lost when the connection breaks.
    constants.DOWNLOAD_CHUNK_SIZE = _CHUNK_BYTES
    resumed = partial.stat().st_size if partial.exists() else 0
    with partial.open("ab") as stream, transfer(progress, file.name.rsplit("/", 1)[-1], file.size, resumed):
        http_get(
            # The commit instead of `main`: what arrives belongs to the checksum even if somebody uploads meanwhile.
            hf_hub_url(repo, file.name, revision=commit, endpoint=endpoint),
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


@contextmanager
def _hub_errors(reference: HubReference, endpoint: str, api: Any) -> Iterator[None]:
    """The only place where the client's errors become ours."""
    from huggingface_hub import errors as hub

    page = f"{endpoint}/{reference.repo}"
    try:
        yield
    except hub.GatedRepoError as error:
        raise GatedModelError(
            f"hf:{reference.repo} is only given to those who have accepted its licence",
            hint=f"accept it at {page}, then log in with `hf auth login` or set HF_TOKEN",
        ) from error
    except hub.RepositoryNotFoundError as error:
        near = _similar_repos(api, reference.repo)
        raise ModelNotFoundError(
            f"hf:{reference.repo} does not exist, or is private",
            hint=f"did you mean: {', '.join(near)}" if near else "a private one needs HF_TOKEN, or `hf auth login`",
        ) from error
    except hub.HfHubHTTPError as error:
        raise _status_error(reference, endpoint, error) from error
    except _transport_errors() as error:
        reason = str(error) or type(error).__name__
        raise OfflineError(
            f"the connection to the hub at {endpoint} failed: {reason}",
            hint="run the command again: what was fetched is kept",
        ) from error
    except OSError as error:
        if error.errno is None and "Consistency check failed" in str(error):
            raise IntegrityError(
                f"hf:{reference.repo} sent another number of bytes than it announced",
                hint="run the command again",
            ) from error
        if error.errno in (errno.ECONNRESET, errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EPIPE):
            raise OfflineError(f"the connection to the hub at {endpoint} failed: {error.strerror}") from error
        raise


def _transport_errors() -> tuple[type[Exception], ...]:
    """What the client's HTTP library raises: the base class that the client gives to its own errors."""
    from huggingface_hub.errors import HfHubHTTPError

    return tuple(base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception) and base is not OSError)


def _status_error(reference: HubReference, endpoint: str, error: Any) -> FetchError:
    status = error.response.status_code
    if status == 401:
        return GatedModelError(
            f"the hub does not accept the token for hf:{reference.repo}", hint="log in again: `hf auth login`"
        )
    if status == 403:
        return GatedModelError(
            f"access to hf:{reference.repo} is forbidden", hint="the token lacks the right to read it, or it is gated"
        )
    if status == 429:
        return FetchError("the hub asks to slow down (429)", hint="wait a few minutes, or log in: `hf auth login`")
    if status == 404:
        return FetchError(f"hf:{reference.repo} has lost this file (404)", hint=f"see {endpoint}/{reference.repo}")
    if status >= 500:
        return OfflineError(f"the hub at {endpoint} is out of order: it answered {status}", hint="try again later")
    return FetchError(f"the hub at {endpoint} answered {status} for hf:{reference.repo}")


def _similar_repos(api: Any, repo: str) -> list[str]:
    """Repositories of a similar name, for the hint. Best effort: another failure would only hide the first."""
    failures: tuple[type[Exception], ...] = (*_transport_errors(), OSError, ValueError)
    try:
        found = list(api.list_models(search=repo.split("/")[-1], filter="gguf", limit=3))
    except failures:
        return []
    return [f"hf:{model.id}" for model in found]
