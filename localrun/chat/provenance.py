"""Which characters of a rendered prompt came from messages, and which the template wrote itself.

The messages are rendered twice: as they are, and with a private-use character before and after each text, one that
occurs nowhere in the input. If the second rendering without those characters equals the first, the template treated
both alike, and the characters show where each text went. If it does not (a template that compares or cuts texts), the
places are unknown and the caller must protect the texts in another way. Knows strings; knows no template and no
vocabulary. Invariant: a traced span never holds a character that the template wrote between two texts.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from itertools import chain

from localrun.errors import TemplateError

Span = tuple[int, int]

# Private-use planes: no character of them is a space or has a case. A template that writes values as Python or as ASCII
# JSON writes them as escapes, which are read back.
_PRIVATE = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
_PRIVATE_CHARACTER = re.compile("[\U000f0000-\U0010fffd]")
_ESCAPED = re.compile(r"\\U(000f[0-9a-f]{4}|0010[0-9a-f]{4})|\\u(db[89a-f][0-9a-f])\\u(d[c-f][0-9a-f]{2})")
_SPACES = " \t\n\r\x0b\x0c"


class Marks:
    """Pairs of characters that occur in none of the given texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        used: set[str] = set()
        for text in texts:
            if not text.isascii():
                used.update(_PRIVATE_CHARACTER.findall(text))
            used.update(map(_character, _ESCAPED.finditer(text)))
        self._free = (chr(code) for code in chain(*_PRIVATE) if chr(code) not in used)
        self._ends: dict[str, str] = {}
        self._starts: dict[str, list[str]] = {}  # text -> a mark for each time it was given

    def around(self, text: str) -> str:
        """Mark a text, inside the white space at its ends, so that a template that trims it trims as before."""
        inner = text.strip(_SPACES)
        if not inner:
            return text
        start, end = self.single(), self.single()
        self._ends[start] = end
        self._starts.setdefault(text, []).append(start)
        at = text.index(inner)
        return f"{text[:at]}{start}{inner}{end}{text[at + len(inner) :]}"

    def single(self) -> str:
        """One more character that occurs nowhere. Raises `TemplateError` when all 131,000 of them are used up."""
        try:
            return next(self._free)
        except StopIteration:
            raise TemplateError(
                "the conversation has too many messages, or private-use characters, to be traced"
            ) from None

    def missing(self, marked: str) -> set[str]:
        """The texts that are nowhere in the rendering. A blank text is never missing."""
        shown = set(_PRIVATE_CHARACTER.findall(marked)).union(map(_character, _ESCAPED.finditer(marked)))
        return {text for text, starts in self._starts.items() if not shown.intersection(starts)}

    def locate(self, marked: str, plain: str) -> tuple[Span, ...] | None:
        """The places of the marked texts in the plain rendering, in order.

        None where both renderings differ, or where a text lost one of its ends.
        """
        if not self._ends:
            return () if marked == plain else None
        marks = {**self._ends, **dict.fromkeys(self._ends.values(), "")}  # an end has no end of its own
        marked = unescaped(marked, marks)
        found = [match for match in _PRIVATE_CHARACTER.finditer(marked) if match.group() in marks]
        if "".join(_pieces(marked, [match.start() for match in found])) != plain:
            return None
        spans: list[Span] = []
        begin, awaited = 0, ""
        for n_marks, match in enumerate(found):
            character, position = match.group(), match.start()
            if awaited and character == awaited:
                spans.append((begin, position - n_marks))
                awaited = ""
            elif marks[character] and not awaited:
                begin, awaited = position - n_marks, marks[character]
            else:
                return None
        return None if awaited else tuple(spans)


def parted(text: str, spans: Iterable[Span]) -> Iterator[tuple[str, bool]]:
    """The parts of a text that are not empty, in order, each with whether it lies in one of the spans."""
    end = 0
    for start, stop in spans:
        if start > end:
            yield text[end:start], False
        if stop > start:
            yield text[start:stop], True
        end = stop
    if end < len(text):
        yield text[end:], False


def unescaped(text: str, among: Container[str]) -> str:
    """The text with those of the given private-use characters that were written as escapes put back."""
    return _ESCAPED.sub(lambda match: character if (character := _character(match)) in among else match.group(), text)


def _character(escape: re.Match[str]) -> str:
    code, high, low = escape.groups()
    if code is not None:
        return chr(int(code, 16))
    return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))


def _pieces(text: str, left_out: list[int]) -> Iterable[str]:
    """The text without the characters at these positions."""
    begin = 0
    for position in left_out:
        yield text[begin:position]
        begin = position + 1
    yield text[begin:]
