"""What the final check will come across in a schema, looked at before there is an output.

Knows which schemas `jsonschema` evaluates and how it follows references; knows no grammar. The grammar need not read
everything that the final check reads (an `if` without `then`; in lenient mode, whatever is not enforced), so this walk
is its own. Invariant: in a schema that passed, every reference leads to the schema that the grammar reads there, no
chain of references runs in a circle, every pattern compiles, and one value costs a bounded number of checks.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from localrun.constraint.schema.dialects import DRAFT_7, META_SCHEMAS
from localrun.constraint.schema.document import Document
from localrun.constraint.schema.places import escape, subschemas

MAX_CHECKS = 100_000
"""Schemas that the final check may have to look at for one value."""

_UNREAD = ("$defs", "definitions", "contentSchema")
_BELOW = ("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "propertyNames", "properties",
          "patternProperties", "additionalProperties", "unevaluatedProperties")  # fmt: skip
"""Keywords whose schemas are about a smaller value: recursion through them ends with the value."""


@dataclass(slots=True)
class _Place:
    """A schema that is evaluated, and the schemas that are evaluated on the same value because of it."""

    pointer: str
    same_value: list[int] = field(default_factory=list)


def look_through(document: Document) -> None:
    """Raise `ConstraintError` with the pointer of the first thing that the final check would stumble over."""
    if isinstance(document.root, dict):
        _Walk(document).run()


class _Walk:
    def __init__(self, document: Document) -> None:
        from referencing import Registry
        from referencing.jsonschema import DRAFT7, DRAFT202012

        self.document = document
        self.specification: Any = DRAFT7 if document.dialect == DRAFT_7 else DRAFT202012
        root = self.specification.create_resource(document.root)
        self.resolver: Any = Registry().with_resource("", root).resolver_with_root(root)
        self.places: dict[int, _Place] = {}

    def run(self) -> None:
        todo: list[tuple[Any, str, Any]] = [(self.document.root, "", self.resolver)]
        while todo:
            schema, pointer, resolver = todo.pop()
            if not isinstance(schema, dict) or id(schema) in self.places:
                continue
            place = self.places[id(schema)] = _Place(pointer)
            for keyword, inner, where, inner_resolver in self._evaluated(schema, pointer, resolver):
                todo.append((inner, where, inner_resolver))
                if keyword not in _BELOW:
                    place.same_value.append(id(inner))
        self._count_checks()

    def _evaluated(self, schema: dict[str, Any], pointer: str, resolver: Any) -> Iterator[tuple[str, Any, str, Any]]:
        """(keyword, schema, pointer, resolver) of the schemas that are evaluated because of this one."""
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(schema.get(keyword), str) and (keyword == "$ref" or self.document.dialect != DRAFT_7):
                yield (keyword, *self._target(schema[keyword], pointer, keyword, resolver))
        if self.document.dialect == DRAFT_7 and "$ref" in schema:
            return  # draft 7 ignores what stands beside it
        self._check_patterns(schema, pointer)
        for path, inner in subschemas(schema):
            keyword = path.partition("/")[0]
            unread = keyword == "additionalItems" and self.document.dialect != DRAFT_7
            if unread or keyword in _UNREAD or (keyword in ("then", "else") and "if" not in schema):
                continue
            where = f"{pointer}/{path}"
            if isinstance(inner, dict):
                self._check_dialect(inner, where)
                yield keyword, inner, where, self._inside(inner, where, resolver)

    def _target(self, reference: str, pointer: str, keyword: str, resolver: Any) -> tuple[Any, str, Any]:
        from referencing.exceptions import Unresolvable

        target = self.document.resolve(pointer, reference, keyword)
        try:
            found = resolver.lookup(reference)
        except (Unresolvable, ValueError, LookupError, TypeError, AttributeError) as error:
            problem = f"the reference {reference!r} cannot be followed by the final check"
            raise self.document.error(f"{pointer}/{keyword}", problem) from error
        if found.contents is not self.document.get(target) and isinstance(found.contents, dict):
            raise self.document.error(f"{pointer}/{keyword}", f"the reference {reference!r} can be read in two ways")
        return found.contents, target, found.resolver

    def _inside(self, schema: dict[str, Any], pointer: str, resolver: Any) -> Any:
        try:
            return resolver.in_subresource(self.specification.create_resource(schema))
        except (ValueError, TypeError, AttributeError) as error:
            problem = f"{schema.get('$id')!r} is no URI: {str(error)[:80]}"
            raise self.document.error(f"{pointer}/$id", problem) from error

    def _check_dialect(self, schema: dict[str, Any], pointer: str) -> None:
        declared = schema.get("$schema")
        if isinstance(declared, str) and declared.rstrip("#") != META_SCHEMAS[self.document.dialect]:
            problem = f"the schema inside is written in another dialect ({declared!r}), which cannot be enforced"
            raise self.document.error(f"{pointer}/$schema", problem)

    def _check_patterns(self, schema: dict[str, Any], pointer: str) -> None:
        named = schema.get("patternProperties", {})
        found = [(f"patternProperties/{escape(pattern)}", pattern) for pattern in named]
        if isinstance(schema.get("pattern"), str):
            found.append(("pattern", schema["pattern"]))
        for path, pattern in found:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    re.compile(pattern)
            except (re.error, RecursionError, OverflowError) as error:
                problem = f"the pattern {pattern[:80]!r} is no regular expression for the final validation: {error}"
                raise self.document.error(f"{pointer}/{path}", problem) from error

    def _count_checks(self) -> None:
        """Refuse circles on one value, and schemas that refer to each other so often that a value takes for ever."""
        costs: dict[int, int] = {}
        for start in self.places:
            path: list[int] = []
            todo = [(start, False)]
            while todo:
                key, leaving = todo.pop()
                inner = [other for other in self.places[key].same_value if other in self.places]
                if leaving:
                    path.pop()
                    costs[key] = 1 + sum(costs[other] for other in inner)
                    if costs[key] > MAX_CHECKS:
                        problem = f"one value would have to be checked against more than {MAX_CHECKS:,} schemas"
                        raise self.document.error(self.places[key].pointer, problem)
                elif key in path:
                    circle = [self.places[other].pointer for other in [*path[path.index(key) :], key]]
                    raise self.document.circle(self.places[key].pointer, circle)
                elif key not in costs:
                    path.append(key)
                    todo.append((key, True))
                    todo += ((other, False) for other in inner)
