"""Texts of a chat template, cut where none of its markers is.

Knows how special tokens are usually written; knows no template and no vocabulary. Invariant: no piece begins or ends
inside a marker.
"""

from __future__ import annotations

import re

INDEX = "\ue000"
"""Stands for the number of a call. A private character: no template has it."""

# What is one special token, or is written like one.
MARKER = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")


def first_piece(text: str) -> str:
    """The beginning of a text, up to the end of its first marker or word."""
    match = re.match(rf"\s*(?:{MARKER.pattern}|[^\s<\[]+|[<\[])", text)
    return match.group() if match else text


def numbered(one: str, two: str) -> str | None:
    """What two calls have in common, with a place for their number; None if they differ in more."""
    if len(one) != len(two) or any(a != b and (a, b) != ("0", "1") for a, b in zip(one, two, strict=True)):
        return None
    return "".join(a if a == b else INDEX for a, b in zip(one, two, strict=True))


def common_end(one: str, two: str) -> str:
    """The longest end that both have, with a place for the number of a call, and no half of a marker at its start."""
    n = 0
    while n < min(len(one), len(two)) and numbered(one[len(one) - n - 1 :], two[len(two) - n - 1 :]) is not None:
        n += 1
    start = len(one) - n
    start = next((m.end() for m in MARKER.finditer(one) if m.start() < start < m.end()), start)
    n = len(one) - start
    return numbered(one[start:], two[len(two) - n :]) or ""


def common_beginning(one: str, two: str) -> str:
    """The longest beginning that both have, with no half of a marker at its end."""
    n = n_common(one, two)
    return one[: min(before_marker(one, n), before_marker(two, n))]


def before_marker(text: str, position: int) -> int:
    """The position, or the beginning of the marker that it lies in."""
    return next((m.start() for m in MARKER.finditer(text) if m.start() < position < m.end()), position)


def n_common(one: str, two: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
