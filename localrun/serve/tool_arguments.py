"""How the arguments of a call are written one by one: which parameters there are, and what may be written for each.

Knows JSON Schema as far as it matters here; knows no template. Invariant: whatever is written as said here, and read
back, is valid by the schema; a schema of which that cannot be promised is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from localrun.params import ConstraintSpec

_NOTES = ("$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated", "strict")
_HOLDERS = ("type", "properties", "required", "additionalProperties", "$defs", "definitions")
_NAMING = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_MOST_CHOICES = 100
_MOST_STEPS = 32  # references that lead to references


class UnwritableError(Exception):
    """Why the arguments of a tool cannot be written one by one."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument. It is a text as it is (`is_free`), one of `choices`, or JSON under `schema`."""

    key: str
    required: bool
    is_text: bool
    """It may be a text: then it is written as one."""
    is_free: bool
    """Any text will do."""
    types: frozenset[str]
    """The types that it may have; empty where any will do."""
    choices: tuple[Any, ...]
    whole: Mapping[str, Any] = field(repr=False)
    """The schema of the tool."""

    @property
    def schema(self) -> ConstraintSpec:
        """What JSON may be written for it."""
        return ConstraintSpec("json_schema", json.dumps(_alone(self.whole, self.key)), "tools")

    @property
    def may_be_number(self) -> bool:
        return not self.types or not self.types.isdisjoint(("integer", "number"))

    def read(self, written: str) -> Any:
        """The value of a free text: JSON that is no text, where the schema takes that too; else the text."""
        if self.types == {"string"}:
            return written
        try:
            value = json.loads(written)
        except (ValueError, RecursionError):
            return written
        return value if not isinstance(value, str) and _fits(value, self.types) else written


def parameters_of(schema: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """The parameters that a tool's schema declares. Raises `UnwritableError`."""
    if odd := [key for key in schema if key not in (*_NOTES, *_HOLDERS) and not key.startswith("x-")]:
        raise UnwritableError(f"its schema has {odd[0]!r} beside its properties")
    if schema.get("type", "object") != "object":
        raise UnwritableError("its schema is not that of an object")
    declared, required = schema.get("properties") or {}, schema.get("required") or []
    if not isinstance(declared, dict) or not isinstance(required, list):
        raise UnwritableError("its schema has properties that are no object, or a required that is no list")
    keys = [key for key, value in declared.items() if value is not False]
    if missing := [key for key in required if key not in declared or declared[key] is False]:
        raise UnwritableError(f"its schema requires {missing[0]!r} without declaring it")
    demanded = frozenset(required)
    return tuple(_parameter(schema, key, required=key in demanded) for key in keys)


def of_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments, which are an object also where it does not say so."""
    if "type" in schema or "$ref" not in schema:
        return {"type": "object", **schema}
    # Older drafts ignore what stands beside a reference.
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {"type": "object", **beside, "allOf": [{"$ref": schema["$ref"]}, *beside.get("allOf", [])]}


def _parameter(root: Mapping[str, Any], key: str, *, required: bool) -> Parameter:
    variants = _variants(root, root["properties"][key])
    values = _all_values(variants)
    types = [_types(variant) for variant in variants]
    known = frozenset[str]().union(*types) if all(types) else frozenset[str]()
    free = all(map(_is_plain, variants)) and (not known or "string" in known)
    return Parameter(
        key,
        required=required,
        is_text=bool(values) or free or known == {"string"},
        is_free=free,
        types=known,
        choices=values,
        whole=root,
    )


def _variants(root: Mapping[str, Any], schema: Any, depth: int = 0) -> list[Any]:
    """A schema without references, and each of its alternatives by itself."""
    if not isinstance(schema, dict) or depth > _MOST_STEPS:
        return [schema]
    rest = {key: value for key, value in schema.items() if key not in _NOTES}
    if len(rest) == 1:
        [(word, value)] = rest.items()
        if word == "$ref" and isinstance(value, str) and (target := _target(root, value)) is not None:
            return _variants(root, target, depth + 1)
        if word in ("anyOf", "oneOf") and isinstance(value, list) and value:
            return [variant for option in value for variant in _variants(root, option, depth + 1)]
    return [rest]


def _target(root: Any, reference: str) -> Any:
    if not reference.startswith("#/"):
        return None
    place = root
    for part in reference[2:].split("/"):
        if not isinstance(place, dict):
            return None
        place = place.get(part.replace("~1", "/").replace("~0", "~"))
    return place


def _all_values(variants: list[Any]) -> tuple[Any, ...]:
    """Every value that these schemas take, if they are few and a text is among them."""
    values: list[Any] = []
    for variant in variants:
        known = _values(variant)
        if known is None:
            return ()
        values += [value for value in known if value not in values]
    return tuple(values) if any(isinstance(v, str) for v in values) and len(values) <= _MOST_CHOICES else ()


def _values(schema: Any) -> list[Any] | None:
    if not isinstance(schema, dict):
        return None
    kinds = schema.get("type")
    if schema.keys() <= {"const", "type"} and "const" in schema:
        return [schema["const"]]
    if schema.keys() <= {"enum", "type"} and isinstance(schema.get("enum"), list):
        # With a type beside it, values of other types would be no good.
        return schema["enum"] if kinds in (None, "string") and all(isinstance(v, str) for v in schema["enum"]) else None
    if schema == {"type": "null"}:
        return [None]
    return [True, False] if schema == {"type": "boolean"} else None


def _types(schema: Any) -> frozenset[str]:
    """The types that a schema names; none where it names none."""
    kinds = schema.get("type") if isinstance(schema, dict) else None
    return frozenset([kinds] if isinstance(kinds, str) else kinds or ())


def _fits(value: Any, types: frozenset[str]) -> bool:
    if isinstance(value, bool) or value is None:
        found = {"boolean" if value is not None else "null"}
    elif isinstance(value, int):
        found = {"integer", "number"}
    else:
        found = {"number" if isinstance(value, float) else "array" if isinstance(value, list) else "object"}
    return not types or bool(types & found)


def _is_plain(schema: Any) -> bool:
    """Whether a schema says nothing but types: then a value of such a type is valid whatever it holds."""
    return schema is True or (isinstance(schema, dict) and schema.keys() <= {"type"})


def _alone(root: Mapping[str, Any], key: str) -> dict[str, Any] | bool:
    """The schema of one property as a document, in which references to the whole still lead somewhere."""
    own = root["properties"][key]
    if not any(_references(own)):
        return own  # type: ignore[no-any-return]  # a schema is an object or a truth value
    pointer = key.replace("~", "~0").replace("/", "~1")
    return {
        "$ref": f"#/$defs/tool/properties/{pointer}",
        "$defs": {"tool": _moved(_reached(root, key), "#/$defs/tool")},
    }


def _reached(root: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A schema with those of its properties and definitions alone that one property leads to."""
    reached: dict[tuple[str, str], None] = {("properties", key): None}
    todo = [("properties", key)]
    while todo:
        word, name = todo.pop()
        for reference in _references(root[word][name]):
            parts = [part.replace("~1", "/").replace("~0", "~") for part in reference.split("/")]
            place = (parts[1], parts[2]) if len(parts) > 2 else ("", "")
            holder = root.get(place[0])
            if parts[0] != "#" or "%" in reference or not isinstance(holder, dict) or place[1] not in holder:
                return {word: value for word, value in root.items() if word not in ("$id", "$schema")}
            if place not in reached:
                reached[place] = None
                todo.append(place)
    found: dict[str, Any] = {}
    for word, name in reached:
        found.setdefault(word, {})[name] = root[word][name]
    return found


def _references(schema: Any) -> Iterator[str]:
    """What a schema refers to; for names that it gives itself, a reference to the whole."""
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
    elif isinstance(schema, dict):
        for word, value in schema.items():
            if word == "$ref" and isinstance(value, str):
                yield value
            elif word in ("$id", "$anchor", "$dynamicRef", "$recursiveRef"):
                yield "#"
            else:
                yield from _references(value)


def _moved(schema: Any, place: str, *, names: bool = False) -> Any:
    """A schema that has been put elsewhere in a document: its references to itself follow it.

    `names`: the keys are names that somebody gave, not words of JSON Schema.
    """
    if isinstance(schema, list):
        return [_moved(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {}
    for key, value in schema.items():
        if names:
            moved[key] = _moved(value, place)
        elif key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            moved[key] = place + value[1:]
        elif key in ("const", "enum", "default", "examples"):
            moved[key] = value
        else:
            moved[key] = _moved(value, place, names=key in _NAMING)
    return moved
