"""The syntax tree of a GBNF grammar.

Knows what a grammar says; knows neither text nor llguidance. Invariant: nodes are frozen and character sets are sorted,
disjoint, and free of surrogates, so equal sets are equal values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)

Interval = tuple[int, int]
CharSet = tuple[Interval, ...]
"""Inclusive ranges of code points, sorted and disjoint."""


def char_set(intervals: Iterable[Interval]) -> CharSet:
    """Sort and join `intervals`, cut to Unicode's scalar values."""
    merged: list[list[int]] = []
    for low, high in sorted(_without_surrogates(intervals)):
        if merged and low <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return tuple((low, high) for low, high in merged)


def _without_surrogates(intervals: Iterable[Interval]) -> Iterator[Interval]:
    for low, high in intervals:
        for part in ((low, min(high, _SURROGATES[0] - 1)), (max(low, _SURROGATES[1] + 1), min(high, MAX_CODE_POINT))):
            if part[0] <= part[1]:
                yield part


def complement(chars: CharSet) -> CharSet:
    """Every scalar value that is not in `chars`."""
    gaps = []
    start = 0
    for low, high in chars:
        gaps.append((start, low - 1))
        start = high + 1
    gaps.append((start, MAX_CODE_POINT))
    return char_set(gap for gap in gaps if gap[0] <= gap[1])


ANY_CHAR = char_set([(0, MAX_CODE_POINT)])


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of a set. An empty set can never match, as in llama.cpp."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Token:
    """One token, by id or by its written form; with `negated`, any token but this one."""

    id: int | None
    text: str
    negated: bool
    offset: int


@dataclass(frozen=True, slots=True)
class Ref:
    """The rule `name`."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Seq:
    """One after the other; an empty sequence is the empty string."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of several."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item` at least `low` and at most `high` times; `high` None is without end."""

    item: Node
    low: int
    high: int | None


Node = Chars | Token | Ref | Seq | Alt | Repeat

EMPTY = Seq(())


@dataclass(frozen=True, slots=True)
class Rule:
    """One definition `name ::= body`."""

    name: str
    body: Node
    offset: int


@dataclass(frozen=True, slots=True)
class Grammar:
    """All rules by name, in the order of their definition; the output is what `root` derives."""

    rules: dict[str, Rule]

    @property
    def root(self) -> Rule:
        return self.rules["root"]


def children(node: Node) -> tuple[Node, ...]:
    """The direct parts of a node."""
    match node:
        case Seq(items):
            return items
        case Alt(options):
            return options
        case Repeat(item):
            return (item,)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and everything inside it, without following references. Nothing recursive: depth costs no stack."""
    todo = [node]
    while todo:
        current = todo.pop()
        yield current
        todo.extend(children(current))
