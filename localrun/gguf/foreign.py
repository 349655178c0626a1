"""Says what a file is when it is not GGUF.

Knows the first bytes of what people mistake for a model: web pages, Git LFS pointers, older formats, checkpoints,
archives. Reads at most a few hundred bytes. Invariant: the error names the kind that was found, so that the user
knows which step went wrong (a download, a clone, a conversion).
"""

from __future__ import annotations

from pathlib import Path

from localrun.errors import ModelFileError

MAGIC = b"GGUF"

_FETCH_AGAIN = "fetch the model again, with `localrun pull` for example"

_LEGACY = {
    b"lmgg": "an unversioned GGML file",
    b"fmgg": "a legacy GGMF file",
    b"tjgg": "a legacy GGJT file",
    b"algg": "a legacy GGLA adapter",
}
"""Magic numbers of the formats before GGUF, as they lie in a little-endian file."""


def shown(path: Path) -> str:
    """`path` for a message: as it is, or quoted with escapes if it holds characters that do not print."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def not_gguf(path: Path, head: bytes) -> ModelFileError:
    """The error for a file that begins with `head` (256 bytes are enough) instead of the GGUF magic."""
    what, hint = _kind(head)
    return ModelFileError(f"{shown(path)} is not a GGUF file: it is {what}", hint=hint)


def _kind(head: bytes) -> tuple[str, str]:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        return "empty", _FETCH_AGAIN
    if len(head) < 4 and MAGIC.startswith(head):
        return f"cut short after {len(head)} bytes", _FETCH_AGAIN
    if text.startswith((b"<!doctype", b"<html", b"<head")):
        return "an HTML page", "a web page was saved instead of the file: use the download link of the file itself"
    if text.startswith(b"<?xml"):
        return "an XML document, probably a server's error message", _FETCH_AGAIN
    if head.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer", "the clone holds no large files: run `git lfs pull` there, or `localrun pull`"
    if head[:4] in _LEGACY:
        return _LEGACY[head[:4]], "formats before GGUF cannot be loaded: fetch a GGUF version of the model"
    if head.startswith(b"PK\x03\x04"):
        return "a ZIP archive (a PyTorch checkpoint or a wheel)", "unpack or convert it first"
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 1 << 32:
        return "a safetensors checkpoint", "convert it with `localrun quantize FOLDER -o OUT.gguf --type f16`"
    if text.startswith((b"{", b"[")):
        return "a JSON document", _FETCH_AGAIN
    if not head.strip(b"\0"):
        return "a file that begins with zeros", "an interrupted or failed write leaves such files: " + _FETCH_AGAIN
    if head.isascii() and head.decode("ascii").replace("\n", "").replace("\r", "").replace("\t", "").isprintable():
        start = head[:40].decode("ascii").split("\n")[0]
        return f"a text file that begins {start!r}", _FETCH_AGAIN
    return f"an unknown kind of file that begins with the bytes {head[:4].hex(' ')}", "GGUF files begin with `GGUF`"
