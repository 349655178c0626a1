"""A JSON Schema document: its schemas by id, and its references resolved inside it.

Knows `$id`, `$anchor`, `$ref`; knows no keyword's meaning beyond where schemas are, and no text. Invariants: no
network; every schema has one id, the JSON pointer of its place in the document (or a made-up one for schemas that are
built on the way).
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from localrun.constraint.schema.dialects import DRAFT_7, fault_in
from localrun.constraint.schema.places import Schema, shown, subschemas
from localrun.errors import ConstraintError

_INDEX = re.compile("0|[1-9][0-9]{0,8}")  # of an array, in a JSON pointer
_CIRCLE_SHOWN = 8  # places of a circle that a message names


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
            if found := fault_in(here, self.dialect):  # it stands where the meta-schema sees no schema
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
