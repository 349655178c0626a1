"""The accept and reject strings of llama.cpp's own grammar tests, read out of their C++ source.

Knows just enough C++ to read `test_grammar(...)`, `test_schema(...)` and `test_build_grammar_fails(...)` calls of
`tests/test-grammar-integration.cpp`: raw and escaped strings, braces, and `token(N)`.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from tests.sdist import sdist_root

Part = str | int
"""Text, or the id of a token."""

_RAW = re.compile(r'R"""\((.*?)\)"""', re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_TOKEN = re.compile(r"token\((\d+)\)")
_NOISE = re.compile(r"[\s+]+|//[^\n]*")


@dataclass(frozen=True)
class Case:
    title: str
    source: str
    passing: tuple[tuple[Part, ...], ...]
    failing: tuple[tuple[Part, ...], ...]


class _Reader:
    def __init__(self, text: str, pos: int) -> None:
        self.text, self.pos = text, pos

    def skip(self) -> None:
        while match := _NOISE.match(self.text, self.pos):
            self.pos = match.end()

    def parts(self) -> tuple[Part, ...]:
        """Strings and tokens up to the next `,`, `}` or `)`."""
        found: list[Part] = []
        while True:
            self.skip()
            if match := _RAW.match(self.text, self.pos):
                found.append(match.group(1))
            elif match := _STRING.match(self.text, self.pos):
                found.append(_unescape(match.group(1)))
            elif match := _TOKEN.match(self.text, self.pos):
                found.append(int(match.group(1)))
            else:
                return tuple(found)
            self.pos = match.end()

    def take(self, char: str) -> bool:
        self.skip()
        if self.text.startswith(char, self.pos):
            self.pos += 1
            return True
        return False

    def strings(self) -> tuple[tuple[Part, ...], ...]:
        assert self.take("{")
        found = []
        while not self.take("}"):
            found.append(self.parts())
            self.take(",")
        return tuple(found)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t", "r": "\r"}.get(m.group(1), m.group(1)), text)


def _cases(call: str) -> list[Case]:
    text = (sdist_root() / "tests" / "test-grammar-integration.cpp").read_text(encoding="utf-8")
    found = []
    for match in re.finditer(rf"^    {call}\(\n", text, re.MULTILINE):
        reader = _Reader(text, match.end())
        title = "".join(map(str, reader.parts()))
        assert reader.take(",")
        source = "".join(map(str, reader.parts()))
        assert reader.take(",")
        passing = reader.strings()
        assert reader.take(",")
        found.append(Case(title, source, passing, reader.strings()))
    return found


@functools.cache
def grammar_cases() -> list[Case]:
    return _cases("test_grammar")


@functools.cache
def schema_cases() -> list[Case]:
    return _cases("test_schema")
