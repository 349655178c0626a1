"""Errors in the words of the Python interface: its keywords instead of the command line's flags.

Knows the names of both; knows no error by name. Invariant: a flag that is no keyword stays as it is, and so does
everything else in a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

from localrun.errors import LocalrunError
from localrun.params import EngineParams, GenerationParams, SamplingParams

_OTHERWISE = {
    "ctx": "n_ctx",
    "parallel": "n_parallel",
    "timeout": "timeout_s",
    "batch_size": "n_batch",
    "mmap": "use_mmap",
}
"""Keywords that are called otherwise than their flag."""
_KEYWORDS = {field.name for kind in (EngineParams, GenerationParams, SamplingParams) for field in fields(kind)} | {
    "offline", "schema", "grammar", "regex", "choice",
}  # fmt: skip
_FLAG = re.compile(
    r"(?<![\w-])--([a-z][a-z0-9-]*)(?: (\d+(?:\.\d+)?|f16|q\d_\d|truncate-middle|shift|ngram)(?![\w-]))?"
)


@contextmanager
def in_keywords() -> Iterator[None]:
    """Errors from within name keywords."""
    try:
        yield
    except LocalrunError as error:
        error.message = as_keywords(error.message)
        error.hint = None if error.hint is None else as_keywords(error.hint)
        error.args = (error.message,)
        raise


def as_keywords(text: str) -> str:
    """`--ctx 4096` → `n_ctx=4096`, `--on-overflow shift` → `on_overflow="shift"`, `--draft` → `draft`."""
    return _FLAG.sub(_keyword, text)


def _keyword(found: re.Match[str]) -> str:
    name = found[1].replace("-", "_")
    name = _OTHERWISE.get(name, name)
    if name not in _KEYWORDS:
        return found[0]
    if found[2] is None:
        return name
    return f"{name}={found[2]}" if found[2][0].isdigit() else f'{name}="{found[2]}"'
