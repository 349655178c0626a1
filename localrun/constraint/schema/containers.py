"""What the keywords about arrays and objects say, wanted and unwanted.

Knows each keyword's meaning in Draft 2020-12 and draft 7; knows no scalars. See `scalars` for what a reader returns.
"""

from __future__ import annotations

from localrun.constraint.schema.expr import ANY, EVERYTHING, Arr, Contains, Expr, Layer, Obj, Shape
from localrun.constraint.schema.keywords import Keyword, Reader, Shapes, join_all, others, union
from localrun.constraint.schema.scalars import check_pattern

_IN_PLACE = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "$dynamicRef")


def _array(shape: Arr) -> Shapes:
    return (*others(Arr), shape)


def _object(shape: Obj) -> Shapes:
    return (*others(Obj), shape)


def _item_exprs(keyword: Keyword, *, wanted: bool) -> tuple[list[Expr], Expr]:
    """(by position, rest) of `prefixItems` and `items`, or of draft 7's `items` and `additionalItems`."""
    schema = keyword.schema
    name, rest = ("items", "additionalItems") if isinstance(schema.get("items"), list) else ("prefixItems", "items")
    prefix = [keyword.expr(name, i, wanted=wanted) for i in range(len(schema.get(name, ())))]
    missing = ANY if wanted else keyword.nothing()
    after = keyword.expr(rest, wanted=wanted) if rest in schema else missing
    if keyword.draft_7 and name == "prefixItems" and wanted:  # which draft 7 does not know: `items` means all items
        prefix = [expr | after for expr in prefix]
    return prefix, after


def _items(keyword: Keyword) -> Shapes:
    prefix, rest = _item_exprs(keyword, wanted=True)
    return _array(Arr(tuple(prefix), rest))


def _not_items(keyword: Keyword) -> Shapes:
    prefix, rest = _item_exprs(keyword, wanted=False)
    found: list[Shape] = []
    for i, expr in enumerate(prefix):
        if expr != keyword.nothing():
            found.append(Arr((*[ANY] * i, expr), min_items=i + 1))
    if rest != keyword.nothing():
        wanted = _item_exprs(keyword, wanted=True)[1]
        if wanted == keyword.nothing():
            found.append(Arr(min_items=len(prefix) + 1))
        elif prefix:
            raise keyword.refuse("'items' after 'prefixItems' cannot be enforced where it is negated")
        else:
            found.append(Arr(contains=(Contains(rest, wanted, 1, None),)))
    return tuple(found)


def _contains_bounds(keyword: Keyword) -> tuple[int, int | None]:
    high = keyword.schema.get("maxContains")
    low = int(keyword.schema.get("minContains", 1))
    return max(low, 1) if keyword.draft_7 else low, None if high is None else int(high)


def _contains_shape(keyword: Keyword, low: int, high: int | None) -> Arr:
    wanted, unwanted = keyword.expr("contains"), keyword.expr("contains", wanted=False)
    if high == 0:
        return Arr(items=unwanted)
    if unwanted == keyword.nothing():  # every item counts
        return Arr(min_items=low, max_items=high)
    return Arr(contains=(Contains(wanted, unwanted, low, high),))


def _contains(keyword: Keyword) -> Shapes:
    low, high = _contains_bounds(keyword)
    if high is not None and low > high:
        return others(Arr)
    return EVERYTHING if low == 0 and high is None else _array(_contains_shape(keyword, low, high))


def _not_contains(keyword: Keyword) -> Shapes:
    low, high = _contains_bounds(keyword)
    found = [_contains_shape(keyword, 0, low - 1)] if low > 0 else []
    if high is not None:
        found.append(_contains_shape(keyword, high + 1, None))
    return tuple(found)


def _unique(keyword: Keyword) -> Shapes:
    return _array(Arr(unique=True)) if keyword.value else EVERYTHING


def _not_unique(keyword: Keyword) -> Shapes:
    if keyword.value:
        raise keyword.refuse("'uniqueItems' cannot be enforced where it is negated")
    return ()


def _properties(keyword: Keyword) -> Shapes:
    schema = keyword.schema
    properties = tuple((name, keyword.expr("properties", name)) for name in schema.get("properties", ()))
    patterns = tuple(
        (check_pattern(keyword, pattern), keyword.expr("patternProperties", pattern))
        for pattern in schema.get("patternProperties", ())
    )
    additional = ANY
    if "additionalProperties" in schema:
        additional = keyword.expr("additionalProperties")
    elif "unevaluatedProperties" in schema:
        if any(name in schema for name in _IN_PLACE) and keyword.expr("unevaluatedProperties") != ANY:
            raise keyword.refuse("'unevaluatedProperties' beside other schemas cannot be enforced")
        additional = keyword.expr("unevaluatedProperties")
    return _object(Obj((Layer(properties, patterns, additional),)))


def _not_properties(keyword: Keyword) -> Shapes:
    schema = keyword.schema
    found: list[Shape] = []
    for name in schema.get("properties", ()):
        expr = keyword.expr("properties", name, wanted=False)
        if expr != keyword.nothing():
            found.append(Obj((Layer(((name, expr),)),), (name,)))
    for name in ("patternProperties", "additionalProperties", "unevaluatedProperties"):
        wanted = schema.get(name, True)
        if name == "patternProperties" and name in schema:
            wanted = all(inner is True or inner == {} for inner in schema[name].values())
        if wanted is not True and wanted != {}:
            raise keyword.refuse(f"{name!r} cannot be enforced where it is negated")
    return tuple(found)


def _required(keyword: Keyword) -> Shapes:
    return _object(Obj(required=tuple(keyword.value))) if keyword.value else EVERYTHING


def _without(keyword: Keyword, name: str) -> Obj:
    """An object that lacks a property."""
    return Obj((Layer(((name, keyword.nothing()),)),))


def _not_required(keyword: Keyword) -> Shapes:
    return tuple(_without(keyword, name) for name in keyword.value)


def _property_names(keyword: Keyword) -> Shapes:
    return _object(Obj(names=keyword.expr("propertyNames")))


def _not_property_names(keyword: Keyword) -> Shapes:
    if keyword.expr("propertyNames") == ANY:
        return ()
    raise keyword.refuse("'propertyNames' cannot be enforced where it is negated")


def _dependents(keyword: Keyword) -> Shapes:
    """`dependentRequired`, `dependentSchemas`, and draft 7's `dependencies`, which is either."""
    parts: list[Shapes] = []
    for name, wanted in keyword.value.items():
        absent = (*others(Obj), _without(keyword, name))
        if isinstance(wanted, list):
            parts.append((*absent, Obj(required=(name, *wanted))))
        else:
            present = join_all([(Obj(required=(name,)),), keyword.literal(keyword.name, name)], keyword.pointer)
            parts.append((*absent, *present))
    return join_all(parts, keyword.pointer)


def _not_dependents(keyword: Keyword) -> Shapes:
    parts: list[Shapes] = []
    for name, wanted in keyword.value.items():
        present = (Obj(required=(name,)),)
        if isinstance(wanted, list):
            parts += [join_all([present, (_without(keyword, other),)]) for other in wanted]
        else:
            parts.append(join_all([present, keyword.literal(keyword.name, name, wanted=False)], keyword.pointer))
    return union(parts)


def _fewer_items(keyword: Keyword) -> Shapes:
    return (Arr(max_items=int(keyword.value) - 1),) if keyword.value >= 1 else ()


def _fewer_properties(keyword: Keyword) -> Shapes:
    return (Obj(max_props=int(keyword.value) - 1),) if keyword.value >= 1 else ()


CONTAINER_READERS: dict[str, tuple[Reader, Reader]] = {
    "items": (_items, _not_items),
    "minItems": (lambda k: _array(Arr(min_items=int(k.value))), _fewer_items),
    "maxItems": (lambda k: _array(Arr(max_items=int(k.value))), lambda k: (Arr(min_items=int(k.value) + 1),)),
    "contains": (_contains, _not_contains),
    "uniqueItems": (_unique, _not_unique),
    "properties": (_properties, _not_properties),
    "required": (_required, _not_required),
    "propertyNames": (_property_names, _not_property_names),
    "minProperties": (lambda k: _object(Obj(min_props=int(k.value))), _fewer_properties),
    "maxProperties": (lambda k: _object(Obj(max_props=int(k.value))), lambda k: (Obj(min_props=int(k.value) + 1),)),
    "dependentRequired": (_dependents, _not_dependents),
    "dependentSchemas": (_dependents, _not_dependents),
    "dependencies": (_dependents, _not_dependents),
}
"""By keyword: the reader for values that satisfy it, and the one for values that violate it."""
