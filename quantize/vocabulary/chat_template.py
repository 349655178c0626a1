"""Chat templates from all the places a checkpoint may keep them.

`chat_template.jinja` wins over tokenizer_config.json, as in transformers; `chat_template.json` comes last; further
named ones are added from `additional_chat_templates/` or a list. Invariant: a checkpoint without one yields none;
no template is ever made up.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from quantize.checkpoint.config import read_json_if_there
from quantize.errors import SourceError
from quantize.metadata import Metadata, string, strings
from quantize.vocabulary.files import TokenizerFiles

_KEY = "tokenizer.chat_template"
DEFAULT = "default"


def chat_templates(files: TokenizerFiles) -> Metadata:
    """The default template and the named ones as GGUF keys. Raises SourceError for an unreadable file."""
    templates = _from_value(files.config.get("chat_template"))
    for name, text in _from_value(read_json_if_there(files.folder / "chat_template.json").get("chat_template")).items():
        templates.setdefault(name, text)
    alone = files.folder / "chat_template.jinja"
    if alone.is_file():
        templates[DEFAULT] = _read(alone)
    for path in sorted((files.folder / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = _read(path)
    named = {_safe(name): text for name, text in templates.items() if name != DEFAULT}
    metadata = {f"{_KEY}.{name}": string(text) for name, text in named.items()}
    if named:
        metadata[f"{_KEY}s"] = strings(list(named))
    if DEFAULT in templates:
        metadata[_KEY] = string(templates[DEFAULT])
    return metadata


def _from_value(value: Any) -> dict[str, str]:
    """One template, or a list of `{name, template}`."""
    if isinstance(value, str):
        return {DEFAULT: value}
    entries = [e for e in value if isinstance(e, dict)] if isinstance(value, list) else []
    return {str(e["name"]): e["template"] for e in entries if e.get("name") and isinstance(e.get("template"), str)}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read {path}: {error}") from error


def _safe(name: str) -> str:
    """Only letters and digits may stand in a key."""
    return re.sub("[^A-Za-z0-9]", "_", name)
