"""What the keywords about types, constants, numbers and strings say, wanted and unwanted.

Knows each keyword's meaning in Draft 2020-12; knows no containers. Each reader returns the alternatives that a value
may have by this keyword alone; the unwanted reader those that violate it.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

from localrun.constraint.schema.expr import Arr, Bool, Layer, Null, Num, Obj, Shape, Str, exact
from localrun.constraint.schema.formats import FORMATS, NUMBER_FORMATS
from localrun.constraint.schema.keywords import Keyword, Reader, Shapes, join_all, others, union
from localrun.constraint.schema.patterns import PatternError, parse_pattern

MAX_LENGTH = 2**32 - 2
"""Characters of a string that can be counted: llguidance counts repetitions in 32 bits."""

_TYPES: dict[str, Shapes] = {
    "null": (Null(),),
    "boolean": (Bool(True), Bool(False)),
    "number": (Num(),),
    "integer": (Num(whole=True),),
    "string": (Str(),),
    "array": (Arr(),),
    "object": (Obj(),),
}


def _types(keyword: Keyword) -> list[str]:
    names = [keyword.value] if isinstance(keyword.value, str) else keyword.value
    return [name for name in names if not (name == "integer" and "number" in names)]


def _type(keyword: Keyword) -> Shapes:
    return union(_TYPES[name] for name in _types(keyword))


def _not_type(keyword: Keyword) -> Shapes:
    names = _types(keyword)
    rest = [shapes for name, shapes in _TYPES.items() if name not in names and name not in ("integer", "number")]
    if "number" not in names:
        rest.append((Num(whole=False),) if "integer" in names else (Num(),))
    return union(rest)


def value_shape(keyword: Keyword, value: Any) -> Shape:
    """Exactly this value."""
    match value:
        case None:
            return Null()
        case bool():
            return Bool(value)
        case int() | float():
            return Num(values=frozenset({exact(value)}))
        case str():
            return Str(values=frozenset({value}))
        case list():
            items = tuple(keyword.made({"const": item}) for item in value)
            return Arr(items, keyword.nothing(), len(items), len(items))
        case _:
            properties = tuple((name, keyword.made({"const": inner})) for name, inner in value.items())
            return Obj((Layer(properties, (), keyword.nothing()),), tuple(value))


def _values(keyword: Keyword) -> list[Any]:
    return [keyword.value] if keyword.name == "const" else keyword.value


def _one_of_values(keyword: Keyword) -> Shapes:
    shapes = [value_shape(keyword, value) for value in _values(keyword)]
    numbers = [value for shape in shapes if isinstance(shape, Num) for value in shape.values or ()]
    strings = [value for shape in shapes if isinstance(shape, Str) for value in shape.values or ()]
    kept: list[Shape] = [shape for shape in shapes if not isinstance(shape, Num | Str)]
    kept += [Num(values=frozenset(numbers))] if numbers else []
    kept += [Str(values=frozenset(strings))] if strings else []
    return tuple(dict.fromkeys(kept))


def _none_of_values(keyword: Keyword) -> Shapes:
    return join_all((_not_value(keyword, value) for value in _values(keyword)), keyword.pointer)


def _not_value(keyword: Keyword, value: Any) -> Shapes:
    match value:
        case None:
            return others(Null)
        case bool():
            return (*others(Bool), Bool(not value))
        case int() | float():
            bound = exact(value)
            return (*others(Num), Num(high=bound, high_open=True), Num(low=bound, low_open=True))
        case str():
            return (*others(Str), Str(not_values=frozenset({value})))
        case list():
            return (*others(Arr), *_not_array(keyword, value))
        case _:
            return (*others(Obj), *_not_object(keyword, value))


def _not_array(keyword: Keyword, value: list[Any]) -> list[Shape]:
    found: list[Shape] = [Arr(min_items=len(value) + 1)]
    if value:
        found.append(Arr(max_items=len(value) - 1))
    for i, item in enumerate(value):
        before = tuple(keyword.made({"const": earlier}) for earlier in value[:i])
        found.append(Arr((*before, keyword.made({"const": item}, wanted=False)), min_items=i + 1))
    return found


def _not_object(keyword: Keyword, value: dict[str, Any]) -> list[Shape]:
    found: list[Shape] = [Obj(min_props=len(value) + 1)]
    for name, inner in value.items():
        found.append(Obj((Layer(((name, keyword.nothing()),)),)))
        found.append(Obj((Layer(((name, keyword.made({"const": inner}, wanted=False)),)),), (name,)))
    return found


def _number(shape: Num) -> Shapes:
    return (*others(Num), shape)


def _multiple_of(keyword: Keyword) -> Shapes:
    return _number(Num(multiple_of=Fraction(exact(keyword.value))))


def _not_multiple_of(keyword: Keyword) -> Shapes:
    if keyword.value == 1:
        return (Num(whole=False),)
    raise keyword.refuse("'multipleOf' cannot be enforced where it is negated")


def _string(shape: Str) -> Shapes:
    return (*others(Str), shape)


def _length(keyword: Keyword) -> int:
    if keyword.value > MAX_LENGTH:
        raise keyword.refuse(f"a length of {keyword.value!s:.24} characters is more than {MAX_LENGTH:,}")
    return int(keyword.value)


def _min_length(keyword: Keyword) -> Shapes:
    return _string(Str(min_len=_length(keyword)))


def _shorter(keyword: Keyword) -> Shapes:
    return (Str(max_len=_length(keyword) - 1),) if keyword.value >= 1 else ()


def _max_length(keyword: Keyword) -> Shapes:
    return _string(Str(max_len=_length(keyword)))


def _longer(keyword: Keyword) -> Shapes:
    return (Str(min_len=_length(keyword) + 1),)


def check_pattern(keyword: Keyword, pattern: str) -> str:
    """The pattern, if a grammar can express it."""
    try:
        parse_pattern(pattern)
    except PatternError as error:
        raise keyword.refuse(
            f"the pattern {pattern if len(pattern) <= 80 else pattern[:77] + '...'!r} {error}"
        ) from error
    return pattern


def _pattern(keyword: Keyword) -> Shapes:
    return _string(Str(patterns=frozenset({check_pattern(keyword, keyword.value)})))


def _not_pattern(keyword: Keyword) -> Shapes:
    return (Str(not_patterns=frozenset({check_pattern(keyword, keyword.value)})),)


def _format(keyword: Keyword) -> Shapes:
    name = keyword.value
    if name in FORMATS:
        return _string(Str(patterns=frozenset({FORMATS[name]})))
    if name in NUMBER_FORMATS:
        bounds = NUMBER_FORMATS[name]
        return _number(Num(low=bounds[0], high=bounds[1]) if bounds else Num())
    raise keyword.refuse(f"the format {name!r} cannot be enforced")


def _not_format(keyword: Keyword) -> Shapes:
    raise keyword.refuse("'format' cannot be enforced where it is negated")


def _bound(value: float) -> Decimal:
    return exact(value)


SCALAR_READERS: dict[str, tuple[Reader, Reader]] = {
    "type": (_type, _not_type),
    "const": (_one_of_values, _none_of_values),
    "enum": (_one_of_values, _none_of_values),
    "minimum": (
        lambda k: _number(Num(low=_bound(k.value))),
        lambda k: (Num(high=_bound(k.value), high_open=True),),
    ),
    "exclusiveMinimum": (
        lambda k: _number(Num(low=_bound(k.value), low_open=True)),
        lambda k: (Num(high=_bound(k.value)),),
    ),
    "maximum": (
        lambda k: _number(Num(high=_bound(k.value))),
        lambda k: (Num(low=_bound(k.value), low_open=True),),
    ),
    "exclusiveMaximum": (
        lambda k: _number(Num(high=_bound(k.value), high_open=True)),
        lambda k: (Num(low=_bound(k.value)),),
    ),
    "multipleOf": (_multiple_of, _not_multiple_of),
    "minLength": (_min_length, _shorter),
    "maxLength": (_max_length, _longer),
    "pattern": (_pattern, _not_pattern),
    "format": (_format, _not_format),
}
"""By keyword: the reader for values that satisfy it, and the one for values that violate it."""
