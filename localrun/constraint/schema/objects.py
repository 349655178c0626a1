"""Objects as rules: properties in the order of the schema, then free ones.

Knows object shapes and rules; how values are written is the writer's business. Invariants: a declared property occurs
at most once and in its place; a free property never has a declared name; counts are exact, and refused where repeated
free names could spoil them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from localrun.constraint.schema import strings
from localrun.constraint.schema.expr import ANY, Expr, Obj, Str, join, pointer_of
from localrun.constraint.schema.grammar import Option, Part
from localrun.constraint.schema.keywords import Unenforceable, property_expr

if TYPE_CHECKING:
    from localrun.constraint.schema.values import ValueWriter

_MAX_PATTERNS = 4  # patterns of property names in one object; each doubles the classes of names
_MAX_STATES = 20_000  # states of counting properties beside their order
_CHUNK = 8  # optional properties that one rule lists before it refers to the next


@dataclass(frozen=True, slots=True)
class _Member:
    """A declared property: the parts of `"name": value`."""

    parts: Option
    required: bool


def object_options(writer: ValueWriter, expr: Expr, shape: Obj, depth: int) -> list[Option]:
    """The alternatives for an object of this shape."""
    layout = writer.layout(depth)
    opening = [Part(writer.rules.literal("{"))]
    start = [*opening, Part(writer.rules.literal(layout.open))] if layout.open else opening
    closing = Part(writer.rules.literal(layout.close + "}"))
    members = _members(writer, shape, depth)
    found: list[Option] = []
    if shape.min_props == 0 and not shape.required:
        found.append((*opening, Part(writer.rules.literal("}"))))
    if shape.max_props == 0:
        return found
    free = _free(writer, expr, shape, depth)
    separator = Part(writer.rules.literal(layout.separator))
    if shape.max_props is None and shape.min_props <= max(1, len(shape.required)):
        firsts = _uncounted(writer, members, free, separator)
    else:
        firsts = _Counting(writer, expr, shape, members, free, separator).firsts()
    return found + [(*start, *first, closing) for first in firsts]


def _members(writer: ValueWriter, shape: Obj, depth: int) -> list[_Member]:
    """The declared properties that may occur, in order."""
    names = dict.fromkeys(name for layer in shape.layers for name, _ in layer.properties)
    names.update(dict.fromkeys(shape.required))
    colon = writer.layout(depth).colon
    found = []
    for name in names:
        wanted = property_expr(shape, name)
        required = name in shape.required
        if not _name_allowed(writer, shape, name):
            wanted = writer.expander.nothing
        # Name and colon apart, as for free names: a longest-match lexer must not prefer one to the other.
        key = (Part(writer.rules.literal(strings.written(name))), Part(writer.rules.literal(colon)))
        if required or wanted != writer.expander.nothing:
            found.append(_Member((*key, Part(writer.value(wanted, depth + 1))), required))
    return found


def _name_allowed(writer: ValueWriter, shape: Obj, name: str) -> bool:
    if shape.names == ANY:
        return True
    return any(isinstance(s, Str) and strings.accepts(s, name) for s in writer.expander.shapes(shape.names))


def _free(writer: ValueWriter, expr: Expr, shape: Obj, depth: int) -> str | None:
    """The rule for one free property: a name that is not declared, and its value. None if there are none."""
    patterns = list(dict.fromkeys(pattern for layer in shape.layers for pattern, _ in layer.patterns))
    if len(patterns) > _MAX_PATTERNS:
        raise Unenforceable(
            pointer_of(expr), f"more than {_MAX_PATTERNS} patterns of property names cannot be enforced"
        )
    declared = frozenset(name for layer in shape.layers for name, _ in layer.properties) | frozenset(shape.required)
    options: list[Option] = []
    for chosen in range(1 << len(patterns)):
        matched = {pattern for i, pattern in enumerate(patterns) if chosen >> i & 1}
        wanted = _free_value(shape, matched)
        if wanted == writer.expander.nothing or writer.expander.nothing <= wanted:
            continue
        key = Str(patterns=frozenset(matched), not_patterns=frozenset(patterns) - matched, not_values=declared)
        options += [(Part(name), Part(writer.value(wanted, depth + 1))) for name in _keys(writer, shape, key, depth)]
    return writer.rule(options) if options else None


def _free_value(shape: Obj, matched: set[str]) -> Expr:
    """What a free property must satisfy whose name matches these patterns and no other."""
    wanted: Expr = ANY
    for layer in shape.layers:
        own = [expr for pattern, expr in layer.patterns if pattern in matched]
        wanted |= frozenset().union(*own) if own else layer.additional
    return wanted


def _keys(writer: ValueWriter, shape: Obj, key: Str, depth: int) -> list[str]:
    """Terminals for names with their colon."""
    allowed = [key] if shape.names == ANY else [join(key, s) for s in writer.expander.shapes(shape.names)]
    colon = writer.rules.literal(writer.layout(depth).colon)
    found = []
    for candidate in allowed:
        if isinstance(candidate, Str) and not strings.is_empty(candidate):
            definition = strings.terminal(replace(candidate))
            if definition is not None:
                found.append(writer.rule([(Part(writer.rules.terminal(definition)), Part(colon))]))
    return found


def _uncounted(writer: ValueWriter, members: list[_Member], free: str | None, separator: Part) -> list[Option]:
    """The alternatives for at least one property, where only presence matters."""
    more_free = Part(writer.rule([(separator, Part(free))]), 0, None) if free is not None else None
    rests = _rests(writer, members, more_free, separator)
    found: list[Option] = []
    for i, member in enumerate(members):
        found.append((*member.parts, *rests[i + 1]))
        if member.required:
            return found
    if free is not None and more_free is not None:
        found.append((Part(free), more_free))
    return found


def _rests(writer: ValueWriter, members: list[_Member], more_free: Part | None, separator: Part) -> list[Option]:
    """By index: what may follow when everything before this member is done and something was written.

    Each rule lists `_CHUNK` members and goes on with a later rule, so a thousand optional properties need rules of
    bounded size that are not nested a thousand deep.
    """
    end: Option = (more_free,) if more_free is not None else ()
    steps = []
    for member in members:
        step = writer.rule([(separator, *member.parts)])
        steps.append(Part(step) if member.required else Part(step, 0, 1))
    rests: list[Option] = [end] * (len(members) + 1)
    for i in range(len(members) - 1, -1, -1):
        after = min(i + _CHUNK, len(members))
        rests[i] = (Part(writer.rule([(*steps[i:after], *rests[after])])),)
    return rests


class _Counting:
    """States (index of the next member, properties so far) of an object with `minProperties` or `maxProperties`."""

    def __init__(
        self,
        writer: ValueWriter,
        expr: Expr,
        shape: Obj,
        members: list[_Member],
        free: str | None,
        separator: Part,
    ) -> None:
        self.writer, self.expr, self.shape = writer, expr, shape
        self.members, self.free, self.separator = members, free, separator
        self.top = shape.max_props if shape.max_props is not None else shape.min_props
        if (len(members) + 1) * (self.top + 1) > _MAX_STATES:
            raise Unenforceable(pointer_of(expr), f"counting these properties needs more than {_MAX_STATES} states")
        self.names: dict[tuple[int, int], str] = {}

    def firsts(self) -> list[Option]:
        found: list[Option] = []
        for i, member in enumerate(self.members):
            found.append((*member.parts, Part(self._rest(i + 1, 1))))
            if member.required:
                return found
        if self.free is not None:
            if self.shape.min_props > 1:
                raise self._names_could_repeat()
            found.append((Part(self.free), Part(self._rest(len(self.members), 1))))
        return found

    def _rest(self, i: int, count: int) -> str:
        """What may follow before member `i` with `count` properties written."""
        count = min(count, self.top + 1 if self.shape.max_props is not None else self.top)
        if (i, count) not in self.names:
            self.names[i, count] = self.writer.rule([])
            for j in range(len(self.members), i, -1):  # from the end, so that nothing recurses deeper than one step
                self._rest(j, min(count, self.top))
            self.writer.rules.rules[self.names[i, count]] = self._options(i, count)
        return self.names[i, count]

    def _options(self, i: int, count: int) -> list[Option]:
        if self.shape.max_props is not None and count > self.shape.max_props:
            return []
        if i == len(self.members):
            return self._free_options(count)
        member = self.members[i]
        taken = (self.separator, *member.parts, Part(self._rest(i + 1, count + 1)))
        return [taken] if member.required else [taken, (Part(self._rest(i + 1, count)),)]

    def _free_options(self, count: int) -> list[Option]:
        missing = max(0, self.shape.min_props - count)
        room = None if self.shape.max_props is None else self.shape.max_props - count
        if self.free is None or room == 0:
            return [()] if missing == 0 else []
        if missing > 1:
            raise self._names_could_repeat()
        return [(Part(self.writer.rule([(self.separator, Part(self.free))]), missing, room),)]

    def _names_could_repeat(self) -> Unenforceable:
        problem = "'minProperties' over free names cannot be enforced: names could repeat"
        return Unenforceable(pointer_of(self.expr), problem)
