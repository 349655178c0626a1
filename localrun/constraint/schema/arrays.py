"""Arrays as rules: items by position, counts, `contains`, and distinct items out of a finite set.

Knows array shapes and rules; how items themselves are written is the writer's business. Invariant: counts are exact; an
array with `unique` never repeats an item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from localrun.constraint.schema.expr import Arr, Bool, Contains, Expr, Null, Num, Shape, Str, pointer_of
from localrun.constraint.schema.grammar import Option, Part
from localrun.constraint.schema.keywords import Unenforceable
from localrun.constraint.schema.numbers import written_number
from localrun.constraint.schema.strings import accepts, written

if TYPE_CHECKING:
    from localrun.constraint.schema.values import ValueWriter

MAX_COUNT = 100_000
"""The largest `minItems`, `maxItems` and their like."""
_MAX_STATES = 4_000  # states of counting `contains` beside positions
_MAX_DISTINCT = 60  # llguidance's parametric rules remember 64 bits
_MAX_WAYS = 8  # items that match and are counted or not, at will


def array_options(writer: ValueWriter, expr: Expr, shape: Arr, depth: int) -> list[Option]:
    """The alternatives for an array of this shape."""
    if max(shape.min_items, shape.max_items or 0) > MAX_COUNT:
        raise Unenforceable(pointer_of(expr), f"arrays of more than {MAX_COUNT} items cannot be enforced")
    layout = writer.layout(depth)
    opening, closing = writer.rules.literal("["), writer.rules.literal(layout.close + "]")
    found: list[Option] = []
    if shape.min_items == 0 and all(part.low == 0 for part in shape.contains):
        found.append((Part(opening), Part(writer.rules.literal("]"))))
    if shape.max_items == 0:
        return found
    inside = _items(writer, expr, shape, depth)
    start = [Part(opening), Part(writer.rules.literal(layout.open))] if layout.open else [Part(opening)]
    found.append((*start, Part(inside), Part(closing)))
    return found


def _items(writer: ValueWriter, expr: Expr, shape: Arr, depth: int) -> str:
    """The rule for at least one item."""
    if shape.unique and shape.max_items != 1:
        return _distinct(writer, expr, shape, depth)
    if len(shape.contains) > 1:
        raise Unenforceable(pointer_of(expr), "more than one 'contains' for one array cannot be enforced")
    if shape.contains:
        return _Counting(writer, expr, shape, shape.contains[0], depth).start()
    return _by_position(writer, shape, depth)


def _by_position(writer: ValueWriter, shape: Arr, depth: int) -> str:
    separator = Part(writer.rules.literal(writer.layout(depth).separator))
    n, high = len(shape.prefix), shape.max_items
    rest = writer.value(shape.items, depth + 1)
    another = writer.rule([(separator, Part(rest))])
    tail: Option = ()
    for taken in range(n if high is None else min(n, high), 0, -1):
        options: list[Option] = [()] if taken >= shape.min_items else []
        if taken == n:
            more = None if high is None else high - n
            options = [(Part(another, max(0, shape.min_items - n), more),)]
        elif high is None or taken < high:
            options.append((separator, Part(writer.value(shape.prefix[taken], depth + 1)), *tail))
        tail = (Part(writer.rule(options)),)
    if n == 0:
        more = None if high is None else high - 1
        return writer.rule([(Part(rest), Part(another, max(0, shape.min_items - 1), more))])
    return writer.rule([(Part(writer.value(shape.prefix[0], depth + 1)), *tail)])


class _Counting:
    """States (items so far, matches so far) of an array with `contains`."""

    def __init__(self, writer: ValueWriter, expr: Expr, shape: Arr, contains: Contains, depth: int) -> None:
        self.writer, self.shape, self.contains, self.depth = writer, shape, contains, depth
        self.positions = max(len(shape.prefix), shape.min_items, shape.max_items or 0)
        self.matches = contains.low if contains.high is None else contains.high
        if (self.positions + 1) * (self.matches + 1) > _MAX_STATES:
            raise Unenforceable(
                pointer_of(expr), f"'contains' with counts this large needs more than {_MAX_STATES} states"
            )
        self.separator = Part(writer.rules.literal(writer.layout(depth).separator))
        self.names: dict[tuple[int, int], str] = {}

    def start(self) -> str:
        self._fill()
        return self.writer.rule([(Part(item), Part(self.names[state])) for item, state in self._moves(0, 0)])

    def _fill(self) -> None:
        """Make the rule of every state: what may follow after so many items and matches."""
        states = [(i, c) for i in range(self.positions + 1) for c in range(self.matches + 1)]
        for state in states:
            self.names[state] = self.writer.rule([])
        for i, c in states:
            options: list[Option] = [()] if i >= self.shape.min_items and c >= self.contains.low else []
            loops: list[Option] = []
            for item, state in self._moves(i, c):
                step = (self.separator, Part(item))
                if state == (i, c):
                    loops.append(step)
                else:
                    options.append((*step, Part(self.names[state])))
            if loops:
                again = self.writer.rule(loops)
                options = [(Part(again, 0, None), *option) for option in options]
            self.writer.rules.rules[self.names[i, c]] = options

    def _moves(self, i: int, c: int) -> list[tuple[str, tuple[int, int]]]:
        """(rule of the next item, state after it)."""
        if self.shape.max_items is not None and i >= self.shape.max_items:
            return []
        item, after = self.shape.item(i), min(i + 1, self.positions)
        found = []
        if self.contains.high is None and c >= self.contains.low:
            return [(self.writer.value(item, self.depth + 1), (after, c))]
        if c < self.matches:
            found.append((self.writer.value(item | self.contains.wanted, self.depth + 1), (after, c + 1)))
        # Without an upper count, an item that matches may as well not be counted: nothing need be negated. With many
        # to count, so many ways to count them would be followed at once that no mask is ever computed.
        may_skip = self.contains.high is None and self.contains.low <= _MAX_WAYS
        other = item if may_skip else item | self.contains.unwanted
        found.append((self.writer.value(other, self.depth + 1), (after, c)))
        return found


def _distinct(writer: ValueWriter, expr: Expr, shape: Arr, depth: int) -> str:
    """An array whose items differ: a parametric rule that remembers which values were used."""
    if shape.contains:
        raise Unenforceable(pointer_of(expr), "'uniqueItems' beside 'contains' cannot be enforced")
    high = shape.max_items
    n = len(shape.prefix) if high is None else min(len(shape.prefix), high)
    by_position = [_finite(writer, expr, item) for item in shape.prefix[:n]]
    rest = [] if high is not None and high <= n else _finite(writer, expr, shape.items)
    values = list(dict.fromkeys(value for found in [*by_position, rest] for value in found))
    if len(values) > _MAX_DISTINCT:
        raise Unenforceable(pointer_of(expr), f"'uniqueItems' over more than {_MAX_DISTINCT} values cannot be enforced")
    if len(values) < shape.min_items or not values:
        return writer.rule([])
    terminals = [writer.rules.literal(value) for value in values]
    separator = writer.rules.literal(writer.layout(depth).separator)
    last = max(n, 1)
    names = [writer.rules.reserve("u") for _ in range(last + 1)]
    for i, name in enumerate(names):
        options = [f'"" %if bit_count_ge(_, {shape.min_items})'] if i > 0 else []
        limit = f", bit_count_lt(_, {high})" if high is not None and high < len(values) else ""
        for number, value in enumerate(values):
            if value in (by_position[i] if i < n else rest):
                comma = f"{separator} " if i > 0 else ""
                condition = f"and(bit_clear({number}){limit})" if limit else f"bit_clear({number})"
                options.append(
                    f"{comma}{terminals[number]} {names[min(i + 1, last)]}::set_bit({number}) %if {condition}"
                )
        writer.rules.raw[name] = "::_ : " + "\n  | ".join(options or ['"" %if false'])
    return writer.rules.leaf(f"{names[0]}::0x0")


def _finite(writer: ValueWriter, expr: Expr, item: Expr) -> list[str]:
    """All values of an expression as they are written, if they are finitely many."""
    found: list[str] = []
    for shape in writer.expander.shapes(item):
        values = _written_values(shape)
        if values is None:
            raise Unenforceable(pointer_of(expr), "'uniqueItems' can be enforced over finitely many values only")
        found += values
    return list(dict.fromkeys(found))


def _written_values(shape: Shape) -> list[str] | None:
    match shape:
        case Null():
            return ["null"]
        case Bool(value):
            return ["true" if value else "false"]
        case Num(values=values) if values is not None:
            return [written_number(v) for v in sorted(values)]
        case Str(values=values) if values is not None:
            return [written(value) for value in sorted(values) if accepts(shape, value)]
        case Arr(max_items=0):
            return ["[]"]
        case _:
            return None
