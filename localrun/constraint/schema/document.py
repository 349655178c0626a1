"""A JSON Schema document: read, checked against its meta-schema, and its references resolved inside it.

Knows JSON, dialects, `$id`, `$anchor`, `$ref`; knows no keyword's meaning beyond where schemas are. Invariants: no
network; every schema has one id, the JSON pointer of its place in the document (or a made-up one for schemas that are
built on the way).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from localrun.constraint.source_text import SourceText, no_text
from localrun.errors import ConstraintError

MAX_NESTING = 200
"""How deep a schema may be nested. Deeper ones are generated, and Python and llguidance recurse over them."""

Schema = dict[str, Any] | bool

DRAFT_7 = "draft7"
DRAFT_2020 = "draft2020-12"

_INDEX = re.compile("0|[1-9][0-9]{0,8}")  # of an array, in a JSON pointer
_CIRCLE_SHOWN = 8  # places of a circle that a message names
_POINTER_SHOWN = 300  # characters

_ONE = ("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then")
_ONE_MORE = ("unevaluatedItems", "unevaluatedProperties", "additionalItems")
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties", "dependencies")


class Document:
    """One schema document. Schemas are looked up by id."""

    def __init__(self, root: Schema, dialect: str, name: str) -> None:
        self.root = root
        self.dialect = dialect
        self.name = name
        self._by_id: dict[str, Schema] = {}
        self._base: dict[str, str] = {}  # id of a schema: the URI its references are relative to
        self._resources: dict[str, str] = {}  # URI: id of the schema it names
        self._made: dict[str, str] = {}  # canonical text of a made-up schema: its id
        self._index(root, "", "")

    def error(self, pointer: str, problem: str, hint: str | None = None) -> ConstraintError:
        """The error for a fault at a JSON pointer."""
        return ConstraintError(f"{self.name}: at {shown(pointer)}: {problem}", hint=hint)

    def circle(self, pointer: str, way: list[str]) -> ConstraintError:
        """The error for references that lead back to where they began."""
        names = [f"#{shown(name) if name else ''}" for name in way]
        if len(names) > _CIRCLE_SHOWN:
            names[_CIRCLE_SHOWN - 2 : -2] = ["..."]
        return self.error(pointer, f"the references run in a circle: {' -> '.join(names)}")

    def get(self, schema_id: str) -> Schema:
        return self._by_id[schema_id]

    def make(self, schema: Schema, pointer: str) -> str:
        """The id of a schema that stands nowhere in the document; `pointer` is what errors about it will name."""
        key = f"{pointer}\0{json.dumps(schema, sort_keys=True)}"
        if key not in self._made:
            schema_id = f"{pointer}~made{len(self._made)}"
            self._made[key] = schema_id
            self._by_id[schema_id] = schema
            self._base[schema_id] = self._base_of(pointer)
        return self._made[key]

    def resolve(self, schema_id: str, reference: str, keyword: str = "$ref") -> str:
        """The id of the schema that a reference inside the schema `schema_id` names."""
        where = f"{schema_id}/{keyword}"
        url, fragment = self._absolute(self._base[schema_id], reference, where)
        target = self._resources.get(url)
        if target is None:
            hint = "only references inside the document can be followed; nothing is fetched"
            raise self.error(where, f"the reference {reference!r} leads out of the document", hint)
        if fragment and not fragment.startswith("/"):
            anchored = self._resources.get(f"{url}#{fragment}")
            if anchored is None:
                raise self.error(where, f"the reference {reference!r} leads nowhere: no such anchor")
            return anchored
        return self._walk_to(target, unquote(fragment), where, reference)

    def _absolute(self, base: str, reference: str, where: str) -> tuple[str, str]:
        """(URI, fragment) of a reference."""
        try:
            url, fragment = urldefrag(urljoin(base, reference))
        except ValueError as error:
            raise self.error(where, f"{reference!r} is no URI: {str(error)[:80]}") from error
        return url, fragment

    def _walk_to(self, start: str, pointer: str, where: str, reference: str) -> str:
        here: Any = self.get(start)
        path = start
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(here, dict) and key in here:
                here = here[key]
            elif isinstance(here, list) and _INDEX.fullmatch(key) and int(key) < len(here):
                here = here[int(key)]
            else:
                raise self.error(where, f"the reference {reference!r} leads nowhere: there is no {key!r}")
            path += "/" + part
        if not isinstance(here, dict | bool):
            raise self.error(where, f"the reference {reference!r} leads to a value that is no schema")
        if path not in self._by_id:
            if found := _fault(here, self.dialect):  # it stands where the meta-schema sees no schema
                raise self.error(path + found[0], found[1])
            self._index(here, path, self._base_of(path))
        return path

    def _base_of(self, pointer: str) -> str:
        """The base URI at a place that holds no known schema itself: that of the nearest schema around it."""
        while pointer and pointer not in self._base:
            pointer = pointer.rpartition("/")[0]
        return self._base[pointer]

    def _index(self, schema: Schema, pointer: str, base: str) -> None:
        """Note the place, base URI and names of a schema and of all schemas inside it."""
        todo = [(schema, pointer, base)]
        while todo:
            schema, pointer, base = todo.pop()
            if isinstance(schema, dict):
                base = self._name(schema, pointer, base)
                todo.extend((inner, f"{pointer}/{path}", base) for path, inner in subschemas(schema))
            elif pointer == "":
                self._resources[""] = ""
            self._by_id[pointer] = schema
            self._base[pointer] = base

    def _name(self, schema: dict[str, Any], pointer: str, base: str) -> str:
        identifier = schema.get("$id")
        alone = self.dialect == DRAFT_7 and "$ref" in schema  # draft 7 ignores what stands beside $ref
        if isinstance(identifier, str) and not alone:
            url, fragment = self._absolute(base, identifier, f"{pointer}/$id")
            if fragment and self.dialect == DRAFT_7:
                self._resources[f"{url}#{fragment}"] = pointer
            else:
                base = url
                self._resources[url] = pointer
        if pointer == "":
            self._resources.setdefault("", "")
            self._resources.setdefault(base, "")
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self._resources[f"{base}#{schema[keyword]}"] = pointer
        return base


def shown(pointer: str) -> str:
    """A JSON pointer on one line, short enough for a message."""
    if not pointer:
        return "(root)"
    text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in pointer)
    return text if len(text) <= _POINTER_SHOWN else text[: _POINTER_SHOWN // 2] + "..." + text[-_POINTER_SHOWN // 2 :]


def escape(key: str) -> str:
    """A property name as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, Schema]]:
    """The schemas directly inside a schema, each with its relative JSON pointer."""
    for keyword in (*_ONE, *_ONE_MORE):
        if isinstance(schema.get(keyword), dict | bool):
            yield keyword, schema[keyword]
    for keyword in _MANY:
        if isinstance(schema.get(keyword), list):
            yield from ((f"{keyword}/{i}", inner) for i, inner in enumerate(schema[keyword]))
    for keyword in _NAMED:
        if isinstance(schema.get(keyword), dict):
            for name, inner in schema[keyword].items():
                if isinstance(inner, dict | bool):  # `dependencies` may hold lists of names
                    yield f"{keyword}/{escape(name)}", inner


def load(text: str, name: str) -> Document:
    """Read a schema. Raises `ConstraintError` with the place in the text, or the JSON pointer of what is no schema."""
    source = SourceText(text, name)
    if _nesting(text) > MAX_NESTING:
        raise ConstraintError(f"{name}: the schema is nested deeper than {MAX_NESTING}")
    try:
        root = json.loads(
            text, object_pairs_hook=_no_duplicates, parse_constant=_Refused, parse_float=_number, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        raise source.error(error.pos, f"this is no JSON: {error.msg[:1].lower()}{error.msg[1:]}") from error
    if found := _first_refused(root):
        raise ConstraintError(f"{name}: at {shown(found[0])}: {found[1]}")
    if not isinstance(root, dict | bool):
        kind = {list: "an array", str: "a string", type(None): "null"}.get(type(root), "a number")
        raise ConstraintError(f"{name}: a JSON Schema is an object, this is {kind}")
    return Document(root, _dialect(root, name), name)


def _nesting(text: str) -> int:
    """The deepest nesting of brackets outside strings; looked at before `json` recurses into it."""
    depth = deepest = 0
    inside = False
    escaped = False
    for char in text:
        if inside:
            inside = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            inside = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


@dataclass(frozen=True, slots=True)
class _Refused:
    """Stands for what JSON or we cannot hold (a number, or an object), until its place in the document is known."""

    text: str
    problem: str = "is no JSON number"

    def __str__(self) -> str:
        return f"{self.text if len(self.text) <= 24 else self.text[:20] + '...'} {self.problem}"


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            return _Refused("the name", f"{name[:80]!r} occurs twice in one object")
        found[name] = value
    return found


def _number(text: str) -> float | _Refused:
    value = float(text)
    return value if math.isfinite(value) else _Refused(text, "is beyond the numbers that can be computed with")


def _integer(digits: str) -> int | _Refused:
    return _Refused(digits, f"has {len(digits)} digits, too many for a number") if len(digits) > 400 else int(digits)


def _first_refused(root: Any) -> tuple[str, str] | None:
    """(JSON pointer, problem) of the first number that is none, or string that is no text; else None."""
    todo = [(root, "")]
    while todo:
        here, pointer = todo.pop()
        if isinstance(here, _Refused):
            return pointer, str(here)
        if isinstance(here, str) and (problem := no_text(here)):
            return pointer, problem
        if isinstance(here, dict):
            for key, inner in here.items():
                if problem := no_text(key):
                    return pointer, f"a name: {problem}"
                todo.append((inner, f"{pointer}/{escape(key)}"))
        elif isinstance(here, list):
            todo += ((inner, f"{pointer}/{number}") for number, inner in enumerate(here))
    return None


def _dialect(root: Schema, name: str) -> str:
    """Which draft the schema is written in; checks it against that draft's meta-schema."""
    declared = root.get("$schema") if isinstance(root, dict) else None
    if isinstance(declared, str):
        known = [key for key, url in META_SCHEMAS.items() if url == declared.rstrip("#")]
        if not known and "2019-09" not in declared:
            hint = "Draft 2020-12 and draft 7 are known"
            raise ConstraintError(f"{name}: at /$schema: the dialect {declared!r} is not supported", hint=hint)
        tried = known or [DRAFT_2020, DRAFT_7]
    else:
        tried = [DRAFT_2020, DRAFT_7]
    faults = []
    for dialect in tried:
        found = _fault(root, dialect)
        if found is None:
            return dialect
        faults.append(found)
    pointer, problem = faults[0]
    raise ConstraintError(f"{name}: at {shown(pointer)}: {problem}")


META_SCHEMAS = {
    DRAFT_2020: "https://json-schema.org/draft/2020-12/schema",
    DRAFT_7: "http://json-schema.org/draft-07/schema",
}
NEWER = frozenset({
    "prefixItems", "dependentSchemas", "dependentRequired", "unevaluatedItems", "unevaluatedProperties",
    "minContains", "maxContains", "$defs", "$anchor", "$dynamicAnchor", "$dynamicRef",
})  # fmt: skip
"""Keywords that draft 7 does not know. They are read in it too, so they must make sense in it too."""
OLDER = frozenset({"dependencies"})
"""Keywords of draft 7 that Draft 2020-12 does not know, and that are read in it too."""


def _fault(schema: Schema, dialect: str) -> tuple[str, str] | None:
    """(JSON pointer, problem) of what the meta-schema refuses in a schema; else None."""
    from jsonschema import Draft7Validator, Draft202012Validator
    from jsonschema.exceptions import best_match

    known = Draft202012Validator if dialect == DRAFT_2020 else Draft7Validator
    fault = best_match(known(known.META_SCHEMA).iter_errors(schema))
    if fault is not None:
        return "".join(f"/{escape(str(part))}" for part in fault.absolute_path), _short(fault.message)
    newest = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    todo = [(schema, "")]
    while todo:  # what the draft does not know, it does not look at, and we read it
        here, pointer = todo.pop()
        if not isinstance(here, dict):
            continue
        if not isinstance(wanted := here.get("dependencies", {}), dict):
            return f"{pointer}/dependencies", _short(f"{wanted!r} is not of type 'object'")
        newer = {name: value for name, value in here.items() if name in NEWER} if dialect == DRAFT_7 else {}
        if newer and (fault := best_match(newest.iter_errors(newer))) is not None:
            path = "".join(f"/{escape(str(part))}" for part in fault.absolute_path)
            return pointer + path, _short(fault.message)
        todo += ((inner, f"{pointer}/{path}") for path, inner in subschemas(here))
    return None


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= 200 else line[:197] + "..."
