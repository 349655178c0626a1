"""From schemas to shapes: which keywords a schema has, and how what they say is joined.

Knows references, dialects, and alternatives of shapes; what single keywords mean is in `scalars`, `containers` and
`logic`. The shapes of a schema are alternatives (a disjunction); schemas inside arrays and objects stay unexpanded
(`Expr`), so recursion costs nothing here. Invariant: `Expander.shapes` describes exactly the values of the schema, or
raises `Unenforceable`, or (lenient) drops a keyword and notes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from localrun.constraint.schema.dialects import DRAFT_7, NEWER, OLDER
from localrun.constraint.schema.document import Document
from localrun.constraint.schema.expr import ANY, EVERYTHING, Arr, Expr, Obj, Shape, Str, join
from localrun.constraint.schema.places import Schema, escape

MAX_SHAPES = 500
"""Alternatives of one value. Schemas that need more are refused."""
MAX_PATTERNS = 8
"""Patterns that one string must match or must not; their automaton may double with each."""
_PROBE_DEPTH = 6  # how deep `is_empty` looks before it takes a value for possible

ANNOTATIONS = frozenset(
    {"$anchor", "$comment", "$defs", "$dynamicAnchor", "$id", "$recursiveAnchor", "$schema", "$vocabulary"}
    | {"contentEncoding", "contentMediaType", "contentSchema", "default", "definitions", "deprecated", "description"}
    | {"example", "examples", "readOnly", "title", "writeOnly"}
)
# Keywords that are read together with another one, and say nothing without it.
_COMPANIONS = {
    "additionalItems": "items",
    "prefixItems": "items",
    "patternProperties": "properties",
    "additionalProperties": "properties",
    "unevaluatedProperties": "properties",
    "minContains": "contains",
    "maxContains": "contains",
    "then": "if",
    "else": "if",
}
_SPEAK_ALONE = frozenset({"prefixItems", "patternProperties", "additionalProperties", "unevaluatedProperties"})

Shapes = tuple[Shape, ...]


class Unenforceable(Exception):
    """A keyword that no grammar of ours can express, and where it stands."""

    def __init__(self, pointer: str, problem: str) -> None:
        super().__init__(problem)
        self.pointer = pointer
        self.problem = problem


class _Unknown(Exception):
    """A probe for emptiness came to a schema that is still being expanded."""


def join_all(parts: Iterable[Shapes], pointer: str = "") -> Shapes:
    """The alternatives that satisfy every part."""
    joined: Shapes = EVERYTHING
    for part in parts:
        if part == EVERYTHING:
            continue
        if joined == EVERYTHING:
            joined = part
            continue
        pairs = (join(a, b) for a in joined for b in part)
        joined = tuple(dict.fromkeys(pair for pair in pairs if pair is not None))
        if any(isinstance(shape, Str) and len(shape.patterns | shape.not_patterns) > MAX_PATTERNS for shape in joined):
            raise Unenforceable(pointer, f"more than {MAX_PATTERNS} patterns for one string")
        if len(joined) > MAX_SHAPES:
            raise Unenforceable(pointer, f"one value has more than {MAX_SHAPES} alternatives")
    return joined


def union(parts: Iterable[Shapes]) -> Shapes:
    """The alternatives of any part."""
    return tuple(dict.fromkeys(shape for part in parts for shape in part))


def others(*kinds: type[Shape]) -> Shapes:
    """Every value that is of none of these types."""
    return tuple(shape for shape in EVERYTHING if not isinstance(shape, kinds))


@dataclass(frozen=True, slots=True)
class Keyword:
    """One keyword of one schema, with what its readers need."""

    expander: Expander
    schema_id: str
    schema: dict[str, Any]
    name: str

    @property
    def value(self) -> Any:
        return self.schema[self.name]

    @property
    def pointer(self) -> str:
        return f"{self.schema_id}/{escape(self.name)}"

    @property
    def draft_7(self) -> bool:
        return self.expander.document.dialect == DRAFT_7

    def inner(self, *path: str | int) -> str:
        """The id of a schema inside this one."""
        return "/".join([self.schema_id, *(escape(str(part)) for part in path)])

    def expr(self, *path: str | int, wanted: bool = True) -> Expr:
        return self.expander.expr(self.inner(*path), wanted)

    def literal(self, *path: str | int, wanted: bool = True) -> Shapes:
        return self.expander.literal(self.inner(*path), wanted)

    def made(self, schema: Schema, *, wanted: bool = True) -> Expr:
        return self.expander.expr(self.expander.document.make(schema, self.schema_id), wanted)

    def nothing(self) -> Expr:
        """An expression that no value satisfies."""
        return self.expander.nothing

    def refuse(self, problem: str) -> Unenforceable:
        return Unenforceable(self.pointer, problem)


Reader = Callable[[Keyword], Shapes]


class Expander:
    """Expands schemas of one document into shapes, with everything remembered."""

    def __init__(self, document: Document, *, lenient: bool, string_is_empty: Callable[[Shape], bool]) -> None:
        from localrun.constraint.schema.containers import CONTAINER_READERS
        from localrun.constraint.schema.logic import LOGIC_READERS
        from localrun.constraint.schema.scalars import SCALAR_READERS

        self.document = document
        self.lenient = lenient
        self.notes: dict[str, str] = {}  # pointer: what is only checked at the end, or ignored
        self.too_deep = ""  # the schema in which expanding recursed too deep
        self.nothing: Expr = frozenset({(document.make(False, ""), True)})
        self.readers: dict[str, tuple[Reader, Reader]] = {**SCALAR_READERS, **CONTAINER_READERS, **LOGIC_READERS}
        self._string_is_empty = string_is_empty
        self._known: dict[tuple[str, bool], Shapes] = {}
        self._expanding: list[tuple[str, bool]] = []
        self._probes = 0

    def shapes(self, expr: Expr) -> Shapes:
        """The alternatives of a conjunction of schemas, in a stable order."""
        ordered = sorted(expr, key=lambda literal: (len(literal[0]), literal))
        return join_all((self.literal(*literal) for literal in ordered), ordered[0][0] if ordered else "")

    def literal(self, schema_id: str, wanted: bool) -> Shapes:
        """The alternatives of one schema, or of its negation."""
        key = (schema_id, wanted)
        if key in self._expanding:
            if self._probes:
                raise _Unknown
            chain = [name for name, _ in self._expanding[self._expanding.index(key) :]]
            raise self.document.circle(schema_id, [*chain, schema_id])
        if key not in self._known:
            self._expanding.append(key)
            try:
                self._known[key] = self._expand(schema_id, wanted)
            except RecursionError:
                self.too_deep = self.too_deep or schema_id
                raise
            finally:
                self._expanding.pop()
        return self._known[key]

    def expr(self, schema_id: str, wanted: bool = True) -> Expr:
        """A schema as an expression; `true` becomes the empty conjunction."""
        schema = self.document.get(schema_id)
        if wanted and (schema is True or schema == {}):
            return ANY
        if (schema is False and wanted) or (schema is True or schema == {}):
            return self.nothing
        return ANY if schema is False else frozenset({(schema_id, wanted)})

    def is_empty(self, expr: Expr, depth: int = 0) -> bool:
        """Whether plainly no value satisfies an expression. False where that cannot be told."""
        if depth > _PROBE_DEPTH:
            return False
        self._probes += 1
        try:
            return all(self.shape_is_empty(shape, depth) for shape in self.shapes(expr))
        except _Unknown:
            return False
        finally:
            self._probes -= 1

    def shape_is_empty(self, shape: Shape, depth: int = 0) -> bool:
        """Whether plainly no value has this shape."""
        match shape:
            case Arr():
                needed = range(min(shape.min_items, len(shape.prefix) + 1))
                return any(self.is_empty(shape.item(i), depth + 1) for i in needed)
            case Obj():
                return any(self.is_empty(property_expr(shape, name), depth + 1) for name in shape.required)
            case _:
                return self._string_is_empty(shape)

    def _expand(self, schema_id: str, wanted: bool) -> Shapes:
        schema = self.document.get(schema_id)
        if isinstance(schema, bool):
            return EVERYTHING if schema == wanted else ()
        if self.document.dialect == DRAFT_7 and "$ref" in schema:
            schema = {"$ref": schema["$ref"]}
        parts = []
        for name in self._spoken(schema_id, schema):
            keyword = Keyword(self, schema_id, schema, name)
            try:
                if name not in self.readers:
                    raise keyword.refuse(f"the keyword {name!r} cannot be enforced")
                if not wanted and (other := self._of_another_draft(schema, name)):
                    raise keyword.refuse(f"{other!r} is of another draft and cannot be enforced where it is negated")
                parts.append(self.readers[name][0 if wanted else 1](keyword))
            except Unenforceable as error:
                if not (self.lenient and wanted):
                    raise
                self.notes[error.pointer] = f"{error.problem}; it is only checked at the end"
        return join_all(parts, schema_id) if wanted else union(parts)

    def _of_another_draft(self, schema: dict[str, Any], leader: str) -> str | None:
        """A keyword, read under this leader, that the schema's own draft does not know.

        It is enforced as well, which forbids nothing too little; negated, it would allow too much.
        """
        foreign = NEWER if self.document.dialect == DRAFT_7 else OLDER
        return next((name for name in schema if name in foreign and leader in (name, _COMPANIONS.get(name))), None)

    def _spoken(self, schema_id: str, schema: dict[str, Any]) -> list[str]:
        """The keywords of a schema that say something, companions under the name of their leader."""
        found = []
        for name in schema:
            if name in ANNOTATIONS or name.startswith("x-"):
                continue
            leader = _COMPANIONS.get(name)
            if leader is not None:
                if leader in schema or name in _SPEAK_ALONE:
                    found.append(leader)
            elif name in self.readers or name in ("unevaluatedItems", "$dynamicRef", "$recursiveRef"):
                found.append(name)
            else:
                self.notes[f"{schema_id}/{escape(name)}"] = f"the keyword {name!r} is unknown and ignored"
        return list(dict.fromkeys(found))


def property_expr(shape: Obj, name: str) -> Expr:
    """What the property `name` of an object must satisfy."""
    expr: Expr = ANY
    for layer in shape.layers:
        expr |= layer.of(name)
    return expr
