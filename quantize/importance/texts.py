"""Texts that lie on every machine with Python: its own documentation (prose) and library (code).

Knows where they are; no tokens. Invariant: what is for calibration and what is for evaluation never overlap.
"""

from __future__ import annotations

import importlib.util
import pydoc
from pathlib import Path

from quantize.errors import SourceError

_CODE = ("argparse", "json.decoder", "textwrap", "statistics", "csv", "heapq", "calendar", "fractions")
_CODE_HELD_OUT = ("configparser", "shlex", "difflib", "bisect", "pprint", "string", "zipapp", "gettext")


def prose(*, held_out: bool) -> str:
    """Python's language reference as plain text: about 150,000 characters for each purpose."""
    topics = _topics()
    names = sorted(topics)
    calibration = "\n\n".join(topics[name] for name in names[::2])
    if not held_out:
        return calibration
    # Topics quote each other: what was used for calibration must not be used again.
    used = set(calibration.split("\n\n"))
    rest = "\n\n".join(topics[name] for name in names[1::2]).split("\n\n")
    return "\n\n".join(dict.fromkeys(paragraph for paragraph in rest if paragraph not in used))


def code(*, held_out: bool) -> str:
    """Modules of the standard library."""
    return "\n\n".join(_source(name) for name in (_CODE_HELD_OUT if held_out else _CODE))


def from_file(path: Path) -> str:
    """A user's own text.

    Raises:
        SourceError: it cannot be read, or is no UTF-8 text.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}", hint="--calibration takes a text file") from error
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{path} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#x}",
            hint="--calibration takes a text file",
        ) from error
    if not text.strip():
        raise SourceError(f"{path} is empty", hint="--calibration wants some pages of text")
    return text


def _topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics  # half a megabyte: only where it is used
    except ImportError:
        # Some distributions leave the topics out: then the library's own help texts stand in.
        return {name: pydoc.plain(pydoc.render_doc(name)) for name in (*_CODE, *_CODE_HELD_OUT)}
    return dict(topics)


def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    return Path(spec.origin).read_text("utf-8")
