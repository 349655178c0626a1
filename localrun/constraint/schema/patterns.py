"""Regular expressions of JSON Schema (`pattern`, `patternProperties`), as syntax trees of sets of characters.

Knows ECMA-262's syntax, and where Python's `re` (which `jsonschema` uses) means something else. Invariant: what a tree
accepts is accepted by both; with `wide`, what either accepts is accepted by the tree (needed under `not`). Patterns are
not anchored: `^` and `$` at the edges of alternatives are resolved, and `.*` is added where they are missing.
"""

from __future__ import annotations

import functools
import re
import warnings
from dataclasses import dataclass

from localrun.constraint.gbnf.syntax import (
    ANY_CHAR,
    EMPTY,
    Alt,
    Chars,
    CharSet,
    Interval,
    Node,
    Repeat,
    Seq,
    char_set,
    complement,
)
from localrun.constraint.repetitions import MAX_WRITTEN_OUT

_MAX_DEPTH = 50
_MAX_REPEAT = 100_000
_DIGITS: CharSet = ((0x30, 0x39),)
_WORD = char_set([(0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A), (0x5F, 0x5F)])
_SPACE = char_set([(9, 13), (32, 32)])
# Python's and ECMA's white space together.
_WIDE_SPACE = char_set(
    (ord(char), ord(char))
    for char in "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_LINE_ENDS = char_set([(10, 10), (13, 13), (0x2028, 0x2029)])
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
_QUANTIFIER = re.compile(r"\{(\d{1,9})(?:(,)(\d{1,9})?)?\}")


class PatternError(Exception):
    """A pattern that is wrong, or that no grammar can express. The message says which."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """`^` or `$`."""

    start: bool


_Tree = Node | Anchor


@functools.lru_cache(maxsize=1024)
def parse_pattern(pattern: str, *, wide: bool = False) -> Node:
    """The strings in which `pattern` is found, as a tree without anchors. Raises `PatternError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise PatternError(f"is no regular expression for the final validation: {error}") from error
    parser = _Parser(pattern, wide=wide)
    try:
        tree = parser.alternatives(0)
        if parser.pos < len(pattern):
            raise PatternError(f"has an unexpected {pattern[parser.pos]!r} at character {parser.pos + 1}")
        if _written_out(tree) > MAX_WRITTEN_OUT:
            raise PatternError(f"has more than {MAX_WRITTEN_OUT:,} characters with its repetitions written out")
        return _search(tree)
    except RecursionError as error:
        raise PatternError("has too many parts around its anchors") from error


class _Parser:
    """Recursive descent, `_MAX_DEPTH` groups deep."""

    def __init__(self, text: str, *, wide: bool) -> None:
        self.text = text
        self.pos = 0
        self.wide = wide

    def alternatives(self, depth: int) -> _Tree:
        if depth > _MAX_DEPTH:
            raise PatternError(f"nests groups deeper than {_MAX_DEPTH}")
        options = [self._sequence(depth)]
        while self._peek() == "|":
            self.pos += 1
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Alt(tuple(options))  # type: ignore[arg-type]

    def _sequence(self, depth: int) -> _Tree:
        items: list[_Tree] = []
        while self._peek() not in ("", "|", ")"):
            items.append(self._quantified(self._atom(depth)))
        return items[0] if len(items) == 1 else Seq(tuple(items))  # type: ignore[arg-type]

    def _quantified(self, atom: _Tree) -> _Tree:
        sign = self._peek()
        if re.compile(r"\{,\d+\}").match(self.text, self.pos):
            raise PatternError("uses '{,n}', a count for Python and text for ECMA; write '{0,n}'")
        counted = _QUANTIFIER.match(self.text, self.pos) if sign == "{" else None
        if counted is not None:
            self.pos = counted.end()
            low = int(counted.group(1))
            high = low if counted.group(2) is None else int(counted.group(3)) if counted.group(3) else None
        elif sign and sign in "*+?":
            self.pos += 1
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        else:
            return atom
        if self._peek() == "?":  # lazy: the same strings
            self.pos += 1
        elif self._peek() == "+":
            raise PatternError("uses a possessive quantifier")
        if max(low, high or 0) > _MAX_REPEAT:
            raise PatternError(f"repeats more than {_MAX_REPEAT} times")
        if isinstance(atom, Anchor):
            return atom if low > 0 else EMPTY
        return Repeat(atom, low, high)

    def _atom(self, depth: int) -> _Tree:
        char = self._peek()
        self.pos += 1
        match char:
            case "^" | "$":
                return Anchor(char == "^")
            case ".":
                return Chars(complement(((10, 10),) if self.wide else _LINE_ENDS))
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case "\\":
                return Chars(self._escape(in_class=False, wide=self.wide))
            case _:
                return Chars(((ord(char), ord(char)),))

    def _group(self, depth: int) -> _Tree:
        if self._peek() == "?":
            named = re.compile(r"\?(?::|P?<[A-Za-z_][A-Za-z_0-9]*>)").match(self.text, self.pos)
            if named is None:
                what = "look-around" if re.match(r"\?<?[=!]", self.text[self.pos :]) else "a group modifier"
                raise PatternError(f"uses {what}, which no grammar can express")
            self.pos = named.end()
        inner = self.alternatives(depth + 1)
        if self._peek() != ")":
            raise PatternError("has a '(' that is never closed")
        self.pos += 1
        return inner

    def _class(self) -> _Tree:
        negated = self._peek() == "^"
        self.pos += negated
        wide = self.wide != negated  # what is excluded must be excluded for every reader
        intervals: list[Interval] = []
        if self._peek() == "]":  # a member of the class for Python, its end for ECMA
            raise PatternError("has a class that begins with ']'; write '\\]'")
        while self._peek() != "]":
            if self._peek() == "":
                raise PatternError("has a '[' that is never closed")
            chars = self._class_item(wide)
            if len(chars) == 1 and chars[0][0] == chars[0][1] and self._range_follows():
                self.pos += 1
                high = self._class_item(wide)
                if len(high) != 1 or high[0][0] != high[0][1] or high[0][0] < chars[0][0]:
                    raise PatternError("has a range in a class that is upside down or no range")
                intervals.append((chars[0][0], high[0][1]))
            else:
                intervals.extend(chars)
        self.pos += 1
        chars = char_set(intervals)
        return Chars(complement(chars) if negated else chars)

    def _range_follows(self) -> bool:
        return self._peek() == "-" and self.text[self.pos + 1 : self.pos + 2] not in ("]", "")

    def _class_item(self, wide: bool) -> CharSet:
        char = self._peek()
        self.pos += 1
        if char == "\\":
            return self._escape(in_class=True, wide=wide)
        return ((ord(char), ord(char)),)

    def _escape(self, *, in_class: bool, wide: bool) -> CharSet:
        char = self._peek()
        self.pos += 1
        sets = {"d": _digits, "w": _word, "s": _space}
        if char and char in sets:
            return sets[char](wide)
        if char and char.lower() in sets:
            return complement(sets[char.lower()](not wide))
        if char == "b" and in_class:
            return ((8, 8),)
        if char in ("b", "B"):
            raise PatternError(f"uses \\{char}, a word boundary, which no grammar can express")
        if char in ("x", "u"):
            return self._hex({"x": 2, "u": 4}[char])
        if char in _CONTROLS:
            return ((_CONTROLS[char], _CONTROLS[char]),)
        if char.isdigit() or char == "k":
            raise PatternError("uses a back-reference, which no grammar can express")
        if char.isalpha() or not char:
            raise PatternError(f"uses the escape \\{char}, which is not supported")
        return ((ord(char), ord(char)),)

    def _hex(self, size: int) -> CharSet:
        digits = self.text[self.pos : self.pos + size]
        if re.fullmatch(f"[0-9a-fA-F]{{{size}}}", digits) is None:
            raise PatternError(f"has an escape without its {size} hexadecimal digits")
        self.pos += size
        code = int(digits, 16)
        if 0xD800 <= code <= 0xDFFF:
            raise PatternError("writes a character as two surrogates; write the character itself")
        return ((code, code),)

    def _peek(self) -> str:
        return self.text[self.pos : self.pos + 1]


def _digits(wide: bool) -> CharSet:
    return _unicode_digits() if wide else _DIGITS


def _word(wide: bool) -> CharSet:
    return _unicode_word() if wide else _WORD


def _space(wide: bool) -> CharSet:
    return _WIDE_SPACE if wide else _SPACE


@functools.cache
def _unicode_digits() -> CharSet:
    return char_set((code, code) for code in range(0x110000) if chr(code).isdecimal())


@functools.cache
def _unicode_word() -> CharSet:
    return char_set([*((code, code) for code in range(0x110000) if chr(code).isalnum()), (0x5F, 0x5F)])


def _search(tree: _Tree) -> Node:
    """All strings in which `tree` is found: anchors at the edges resolved, anything before and after elsewhere."""
    anything = Repeat(Chars(ANY_CHAR), 0, None)
    options: list[Node] = []
    for at_start, rest in _edge(tree, start=True):
        for at_end, core in _edge(rest, start=False):
            if _has_anchor(core):
                raise PatternError("has an anchor in the middle, where it can hardly match")
            parts = [] if at_start else [anything]
            parts.append(core)  # type: ignore[arg-type]
            parts += [] if at_end else [anything]
            options.append(Seq(tuple(parts)))
    return options[0] if len(options) == 1 else Alt(tuple(options))


def _written_out(tree: _Tree) -> int:
    """Characters and classes of a tree whose counted repetitions are written out."""
    match tree:
        case Seq(parts) | Alt(parts):
            return sum(map(_written_out, parts))
        case Repeat(item, low, high):
            return _written_out(item) * max(low, high or 0, 1)
        case _:
            return 1


def _has_anchor(tree: _Tree) -> bool:
    match tree:
        case Anchor():
            return True
        case Seq(parts) | Alt(parts):
            return any(_has_anchor(part) for part in parts)
        case Repeat(item):
            return _has_anchor(item)
        case _:
            return False


def _edge(tree: _Tree, *, start: bool) -> list[tuple[bool, _Tree]]:
    """The alternatives of `tree` as (anchored at this edge, the rest without that anchor)."""
    if not _has_anchor(tree):
        return [(False, tree)]
    match tree:
        case Anchor():
            return [(True, EMPTY)] if tree.start == start else [(False, tree)]
        case Alt(options):
            return [found for option in options for found in _edge(option, start=start)]
        case Repeat(item, low, high) if high == 1:
            return _edge(item, start=start) + ([(False, EMPTY)] if low == 0 else [])
        case Seq(items) if items:
            outer, inner = (items[0], items[1:]) if start else (items[-1], items[:-1])
            found: list[tuple[bool, _Tree]] = []
            for anchored, part in _edge(outer, start=start):
                if part == EMPTY and inner:
                    found += [(anchored or more, rest) for more, rest in _edge(Seq(inner), start=start)]
                else:
                    found.append((anchored, Seq((part, *inner) if start else (*inner, part))))  # type: ignore[arg-type]
            return found
        case _:
            return [(False, tree)]
