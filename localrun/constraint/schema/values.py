"""From shapes to a grammar of JSON text.

Knows how JSON is written, compact or indented; knows no keywords. Every pair of an expression and (when indented) a
depth becomes a rule, made when it is first needed, so recursive schemas become recursive rules. Invariant: properties
are written in the order of the schema, each at most once.
"""

from __future__ import annotations

from dataclasses import dataclass

from localrun.constraint.schema import numbers, strings
from localrun.constraint.schema.arrays import array_options
from localrun.constraint.schema.expr import Arr, Bool, Expr, Null, Num, Obj, Shape, Str, pointer_of
from localrun.constraint.schema.grammar import Option, Part, RuleSet
from localrun.constraint.schema.keywords import Expander, Unenforceable
from localrun.constraint.schema.multiples import NumberTooLarge
from localrun.constraint.schema.objects import object_options

MAX_RULES = 50_000
"""Rules of one grammar; schemas that need more are refused."""
_MAX_INDENT = 12  # levels that are indented one by one; deeper values stay at this level


@dataclass(frozen=True, slots=True)
class Layout:
    """White space between the parts of arrays and objects at one depth."""

    open: str
    separator: str
    close: str
    colon: str


class ValueWriter:
    """Writes expressions as rules."""

    def __init__(self, expander: Expander, *, pretty: bool) -> None:
        self.expander = expander
        self.pretty = pretty
        self.rules = RuleSet()
        self._names: dict[tuple[Expr, int], str] = {}
        self._todo: list[tuple[Expr, int]] = []
        self._counter = 0

    def grammar(self, root: Expr) -> str:
        """The whole grammar, or the empty text where no value satisfies `root`."""
        start = self.value(root, 0)
        while self._todo:
            expr, depth = self._todo.pop()
            options: list[Option] = []
            for shape in self.expander.shapes(expr):
                options += self._options(expr, shape, depth)
            self.rules.rules[self._names[expr, depth]] = options
            if len(self.rules.rules) > MAX_RULES:
                raise Unenforceable("", f"the schema needs more than {MAX_RULES} rules")
        return self.rules.text(start)

    def value(self, expr: Expr, depth: int) -> str:
        """The name of the rule for an expression at a depth."""
        key = (expr, min(depth, _MAX_INDENT) if self.pretty else 0)
        if key not in self._names:
            self._names[key] = f"v{len(self._names)}"
            self._todo.append(key)
        return self._names[key]

    def rule(self, options: list[Option]) -> str:
        """A new rule with these alternatives."""
        self._counter += 1
        name = f"x{self._counter}"
        self.rules.rules[name] = options
        return name

    def layout(self, depth: int) -> Layout:
        """The white space of a container at `depth`."""
        if not self.pretty:
            return Layout("", ",", "", ":")
        inner, outer = ("\n" + "  " * min(level, _MAX_INDENT + 1) for level in (depth + 1, depth))
        return Layout(inner, f",{inner}", outer, ": ")

    def _options(self, expr: Expr, shape: Shape, depth: int) -> list[Option]:
        match shape:
            case Null():
                return [(Part(self.rules.literal("null")),)]
            case Bool(value):
                return [(Part(self.rules.literal("true" if value else "false")),)]
            case Num():
                try:
                    return [(Part(numbers.symbol(shape, self.rules)),)]
                except NumberTooLarge as error:
                    raise Unenforceable(pointer_of(expr), str(error)) from error
            case Str():
                definition = None if strings.is_empty(shape) else strings.terminal(shape)
                return [(Part(self.rules.terminal(definition)),)] if definition is not None else []
            case Arr():
                return array_options(self, expr, shape, depth)
            case Obj():
                return object_options(self, expr, shape, depth)
