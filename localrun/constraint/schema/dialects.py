"""The drafts of JSON Schema that are read: how they are told apart, and what their meta-schemas refuse.

Knows `$schema`, the meta-schemas and the keywords of one draft that the other lacks; knows no references. Invariant: a
schema without a fault has every keyword that is read in a form that its reader can take.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import Any

from localrun.constraint.schema.places import Schema, escape, shown, subschemas
from localrun.errors import ConstraintError

DRAFT_7 = "draft7"
DRAFT_2020 = "draft2020-12"

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
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


def fault_in(schema: Schema, dialect: str) -> tuple[str, str] | None:
    """(JSON pointer, problem) of what the meta-schema refuses in a schema; else None."""
    from jsonschema import Draft7Validator, Draft202012Validator
    from jsonschema.exceptions import best_match

    known = Draft202012Validator if dialect == DRAFT_2020 else Draft7Validator
    fault = best_match(known(known.META_SCHEMA).iter_errors(schema))
    if fault is not None:
        return "".join(f"/{escape(str(part))}" for part in fault.absolute_path), _problem(fault)
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
            return pointer + path, _problem(fault)
        todo += ((inner, f"{pointer}/{path}") for path, inner in subschemas(here))
    return None


def _problem(fault: Any) -> str:
    """What a fault of the meta-schema is about, in words of the schema and not of the meta-schema."""
    if fault.validator == "anyOf" and list(fault.schema_path)[-2:-1] == ["type"]:
        return _no_type(fault.instance)
    if fault.validator == "enum" and set(fault.validator_value) == set(TYPES):
        return _no_type(fault.instance)
    if fault.validator in ("anyOf", "oneOf") and fault.context:
        return _short(" and ".join(dict.fromkeys(inner.message for inner in fault.context)))
    return _short(fault.message)


def _no_type(value: Any) -> str:
    near = get_close_matches(str(value).lower(), TYPES, n=1)
    meant = f"; did you mean {near[0]!r}?" if near and isinstance(value, str) else ""
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return f"{_short(text)} is not a type; the types are {', '.join(TYPES)}{meant}"


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= 200 else line[:197] + "..."


def dialect_of(root: Schema, name: str) -> str:
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
        found = fault_in(root, dialect)
        if found is None:
            return dialect
        faults.append(found)
    pointer, problem = faults[0]
    raise ConstraintError(f"{name}: at {shown(pointer)}: {problem}")
