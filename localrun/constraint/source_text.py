"""Positions in the source of a constraint, as people read them.

Knows text, offsets and how an error is shown; knows no syntax. Invariant: lines and columns count from 1, columns in
characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from localrun.errors import ConstraintError

_EXCERPT = 76  # characters of the faulty line that are shown

_SURROGATE = re.compile("[\ud800-\udfff]")


def no_text(text: str) -> str | None:
    """What keeps a string from being text: a half of a surrogate pair, or a byte that was read as one; else None."""
    found = _SURROGATE.search(text)
    if found is None:
        return None
    code, place = ord(found[0]), f"character {found.start() + 1:,} of {_shown(text)}"
    if 0xDC80 <= code <= 0xDCFF:  # how Python hands over a byte of the command line that is no UTF-8
        return f"{place} is the byte 0x{code - 0xDC00:02x}, which is no UTF-8"
    return f"{place} is half of a surrogate pair, which is no character"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


@dataclass(frozen=True, slots=True)
class SourceText:
    """The text of a grammar, schema or regex, and the name it goes by in messages."""

    text: str
    name: str

    def position(self, offset: int) -> tuple[int, int]:
        """(line, column) of a character offset."""
        before = self.text[:offset]
        line = before.count("\n") + 1
        return line, offset - (before.rfind("\n") + 1) + 1

    def excerpt(self, offset: int) -> str:
        """The line at `offset`, cut to a readable width, with a caret under the character."""
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        line = self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")
        line = "".join(char if char.isprintable() else " " if char == "\t" else "\ufffd" for char in line)
        column = offset - start
        left = max(0, min(column - _EXCERPT // 2, len(line) - _EXCERPT))
        shown = line[left : left + _EXCERPT]
        return f"  {shown}\n  {' ' * (column - left)}^"

    def error(self, offset: int, problem: str, advice: str = "") -> ConstraintError:
        """The error for a fault at `offset`: `name:line:column: problem`, with the line and a caret in the hint."""
        line, column = self.position(offset)
        hint = f"{advice}\n{self.excerpt(offset)}" if advice else f"here:\n{self.excerpt(offset)}"
        return ConstraintError(f"{self.name}:{line}:{column}: {problem}", hint=hint)
