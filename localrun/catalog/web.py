"""Fetches models from plain web servers, and resumes where a transfer broke off.

Knows HTTP through the standard library (which knows proxies); knows no hub. A transfer is kept in `NAME.part` with a
note of which version of the file it belongs to. Invariant: bytes of two versions are never joined, and the file gets
its name only when its size, its checksum (where known) and its header are right.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from localrun.catalog.places import url_path
from localrun.catalog.progress import Progress, transfer
from localrun.catalog.reach import unreachable, why_unreachable
from localrun.catalog.references import UrlReference
from localrun.catalog.storage import (
    check_gguf,
    check_room,
    checked_sha256,
    disk_errors,
    one_at_a_time,
    write_source_note,
)
from localrun.errors import FetchError, GatedModelError, IntegrityError, ModelNotFoundError, OfflineError
from localrun.paths import ensure_private

_TIMEOUT_S = 20.0
_TRIES = 4
"""How often a broken transfer is taken up again before the user is asked to."""
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Version:
    """Which version of the remote file a partial file belongs to."""

    total: int | None
    validator: str | None
    """A strong ETag, or Last-Modified: what `If-Range` may carry."""
    source: str = ""
    """The reference, for the list of unfinished downloads."""


class _ChangedError(Exception):
    """The server has another version than the one that we have the beginning of."""


class _BrokenOffError(Exception):
    """The connection ended before the body did. What arrived is in the partial file."""


def fetch_from_url(reference: UrlReference, size: int | None, sha256: str | None, progress: Progress) -> Path:
    """Fetch the file, resuming an earlier try; the path of the file.

    Raises `OfflineError` where the server cannot be reached, `GatedModelError`, `ModelNotFoundError`, `IntegrityError`
    or `FetchError`.
    """
    target = url_path(reference)
    sha256 = sha256 or reference.sha256
    with disk_errors(reference.shown, target.parent):
        ensure_private(target.parent)
        with one_at_a_time(target.parent / f"{target.name}.lock", reference.shown, progress):
            if target.exists():
                return target
            if (reason := why_unreachable(reference.url)) is not None:
                raise unreachable(reference.shown, reason)
            partial = target.with_name(target.name + ".part")
            version = _transfer_whole(reference, partial, progress)
            try:
                expected_size = size if size is not None else version.total
                digest = checked_sha256(partial, sha256, expected_size, reference.shown, progress)
                check_gguf(partial, reference.shown)
            except IntegrityError:
                _discard(partial)
                raise
            write_source_note(target, reference.text, digest)
            partial.replace(target)
            _note_of(partial).unlink(missing_ok=True)
    return target


def _transfer_whole(reference: UrlReference, partial: Path, progress: Progress) -> _Version:
    """Transfer until the body is complete, taking it up again after breaks."""
    for left in reversed(range(_TRIES)):
        try:
            return _transfer(reference, partial, progress)
        except _ChangedError:
            progress.note(f"{reference.shown} has changed since an earlier try: starting over")
            _discard(partial)
        except _BrokenOffError as error:
            if not left:
                raise OfflineError(
                    f"the connection to {reference.shown} broke off: {error}",
                    hint="run the command again: what was fetched is kept",
                ) from error
    raise FetchError(f"{reference.shown} changes all the time", hint="try again later")


def _transfer(reference: UrlReference, partial: Path, progress: Progress) -> _Version:
    known = _read_note(partial)
    have = partial.stat().st_size if known is not None and partial.exists() else 0
    if known is not None and have and have == known.total:
        return known
    headers = {"User-Agent": "localrun", "Accept-Encoding": "identity"}
    if known is not None and have and known.validator:
        headers |= {"Range": f"bytes={have}-", "If-Range": known.validator}
    try:
        with _open(reference, headers) as response:
            start = _start_of_body(response, have, known)
            version = _version_of(response, start, reference)
            _write_note(partial, version)
            check_room(partial.parent, (version.total or 0) - start, reference.shown)
            _copy_body(response, partial, start, version, reference, progress)
    except (TimeoutError, http.client.HTTPException, ConnectionError, ssl.SSLError) as error:
        raise _BrokenOffError(str(error) or type(error).__name__) from error
    return version


def _start_of_body(response: http.client.HTTPResponse, have: int, known: _Version | None) -> int:
    """From which byte on the body counts: 0 where the server sends the whole file."""
    if response.status != 206 or known is None:
        return 0
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    same = known.validator in (response.headers.get("ETag"), response.headers.get("Last-Modified"))
    if match and int(match[1]) == have and match[2] in ("*", str(known.total)) and same:
        return have
    raise _ChangedError  # a server that ignores If-Range


def _copy_body(
    response: http.client.HTTPResponse,
    partial: Path,
    start: int,
    version: _Version,
    reference: UrlReference,
    progress: Progress,
) -> None:
    with (
        partial.open("r+b" if start else "wb") as file,
        transfer(progress, reference.file_name, version.total, start) as shown,
    ):
        file.seek(start)
        done = start
        while block := response.read(_READ_BYTES):
            file.write(block)
            done += len(block)
            shown.update(done)
    if version.total is not None and done < version.total:
        raise _BrokenOffError(f"{done} of {version.total} bytes arrived")


def _version_of(response: http.client.HTTPResponse, start: int, reference: UrlReference) -> _Version:
    length = response.headers.get("Content-Length")
    etag = response.headers.get("ETag")
    strong = etag if etag and not etag.startswith("W/") else None
    return _Version(
        # A server that compresses on the way tells the length of something else.
        total=start + int(length)
        if length and length.isdigit() and not response.headers.get("Content-Encoding")
        else None,
        validator=strong or response.headers.get("Last-Modified"),
        source=reference.text,
    )


def _open(reference: UrlReference, headers: dict[str, str]) -> Any:
    """Send the request; the response, whose status is 200 or 206. Redirects are followed."""
    parts = urlsplit(reference.url)
    url = reference.url
    if parts.username is not None:
        # urllib does not know credentials in a URL; they travel as Basic authentication.
        host = parts.netloc.rpartition("@")[2]
        url = parts._replace(netloc=host).geturl()
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = {**headers, "Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            raise _ChangedError from error
        raise _status_error(reference, error.code, error.headers.get("Retry-After")) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise FetchError(
                f"the certificate of {reference.shown} is not valid: {error.reason.verify_message}",
                hint="behind a company proxy, set SSL_CERT_FILE to its certificates",
            ) from error
        if isinstance(error.reason, OSError):
            raise _BrokenOffError(error.reason.strerror or str(error.reason)) from error
        raise FetchError(f"{reference.shown} cannot be fetched: {error.reason}") from error


def _status_error(reference: UrlReference, status: int, retry_after: str | None) -> FetchError | ModelNotFoundError:
    url = reference.shown
    if status in (401, 403, 407):
        return GatedModelError(
            f"{url} needs permission (the server answered {status})",
            hint="fetch it in a browser and name the file, or write https://USER:PASSWORD@…",
        )
    if status in (404, 410):
        return ModelNotFoundError(f"{url} does not exist (the server answered {status})", hint="check the URL")
    if status == 429:
        wait = f" for {retry_after} s" if retry_after and retry_after.isdigit() else ""
        return FetchError(f"the server of {url} asks to wait{wait} (429)", hint="run the command again later")
    if status >= 500:
        return OfflineError(f"the server of {url} is out of order: it answered {status}", hint="try again later")
    return FetchError(f"the server answered {status} for {url}")


def _note_of(partial: Path) -> Path:
    return partial.with_name(partial.name + ".json")


def _read_note(partial: Path) -> _Version | None:
    try:
        return _Version(**json.loads(_note_of(partial).read_text("utf-8")))
    except (OSError, ValueError, TypeError):  # none yet, or not one of ours: the transfer starts over
        return None


def _write_note(partial: Path, version: _Version) -> None:
    _note_of(partial).write_text(json.dumps(asdict(version)), "utf-8")


def _discard(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    _note_of(partial).unlink(missing_ok=True)
