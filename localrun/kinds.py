"""Whether the fields of a frozen dataclass have the types that they are declared with.

Knows Python's types and how a wrong one is told; knows no field's meaning or range. Types come from the command line
and the settings as they should be, so a wrong one comes from Python and is named by its Python parameter. Invariant:
behind `check_kinds` every field has its declared type, lists are tuples, and the instance can be hashed.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from enum import Enum
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from localrun.errors import UsageError

_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}


def check_kinds(instance: Any) -> None:
    """Raise `UsageError` for the first field of a wrong type; turns lists into tuples in place."""
    for name, hint in _hints(type(instance)).items():  # type: ignore[arg-type]
        value = getattr(instance, name)
        kept = _kept(value, hint)
        if kept is _WRONG:
            raise UsageError(f"{name} is {shown(value)}; it must be {_described(hint)}")
        if kept is not value:
            object.__setattr__(instance, name, kept)


def shown(value: object) -> str:
    """A value on one line of readable length."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python does not write numbers of more than 4,300 digits
        return "a number of too many digits"
    return text if len(text) <= 60 else text[:40] + "..."


_WRONG = object()


@functools.cache
def _hints(made: Hashable) -> dict[str, Any]:
    return get_type_hints(made)


def _kept(value: Any, hint: Any) -> Any:
    """The value as it is kept, or `_WRONG`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return next((kept for arg in args if (kept := _kept(value, arg)) is not _WRONG), _WRONG)
    if origin is Literal:
        return value if isinstance(value, str) else _WRONG  # which words there are, the class says itself
    if origin is tuple:
        return _kept_tuple(value, args)
    if hint is int:
        return _whole(value)
    if hint is float:
        return _number(value)
    if isinstance(hint, type) and issubclass(hint, Enum) and isinstance(value, str):
        return next((item for item in hint if item.value == value), _WRONG)
    return value if isinstance(value, hint) else _WRONG


def _kept_tuple(value: Any, args: tuple[Any, ...]) -> Any:
    if not isinstance(value, list | tuple):
        return _WRONG
    wanted: Sequence[Any] = [args[0]] * len(value) if args[-1] is Ellipsis else args
    if len(wanted) != len(value):
        return _WRONG
    kept = tuple(_kept(item, hint) for item, hint in zip(value, wanted, strict=True))
    if any(item is _WRONG for item in kept):
        return _WRONG
    same = isinstance(value, tuple) and all(new is old for new, old in zip(kept, value, strict=True))
    return value if same else kept


def _whole(value: Any) -> Any:
    if isinstance(value, bool):
        return _WRONG
    return int(value) if isinstance(value, Integral) else _WRONG


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, Real):
        return _WRONG
    try:
        number = float(value)
    except OverflowError:
        return _WRONG
    return value if _is_plain(value) else number


def _is_plain(value: object) -> bool:
    return type(value) in {int, float}


def _described(hint: Any) -> str:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_described(arg) for arg in args)
    if origin is Literal:
        return f"one of {', '.join(args)}"
    if origin is tuple:
        inner = _described(args[0]) if args[-1] is Ellipsis else " and ".join(map(_described, args))
        return f"a list of items that are each {inner}" if args[-1] is Ellipsis else f"a pair of {inner}"
    if hint is NoneType:
        return "None"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"one of {', '.join(str(item.value) for item in hint)}"
    return _WORDS.get(hint, f"of the type {getattr(hint, '__name__', hint)}")
