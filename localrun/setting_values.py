"""The values of settings, from text or TOML to what they mean.

Knows the forms in which a value may be written; knows no setting's name and no source. Invariant: nonsense is a
`ValueError` (or Python's `TypeError` or `OverflowError`) that ends a sentence about it: "it must be a number".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from localrun.params import OverflowPolicy

ALL_LAYERS = 10_000
"""What `--gpu-layers all` means: more than any model has."""

Parser = Callable[[object], Any]


def as_integer(value: object) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError("it must be a whole number")
    if not isinstance(value, int | float | str):
        raise ValueError("it must be a whole number")
    return int(value)


def as_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("it must be a number")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError("it is beyond the numbers that can be computed with") from error


def as_whole(value: object) -> int:
    """A whole number, also one written as `2.0`; what is not finite is none."""
    number = as_number(value)
    if not number.is_integer():
        raise ValueError("it must be a whole number")
    return int(number)


def as_boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if str(value).lower() not in words:
        raise ValueError("it must be true or false")
    return words[str(value).lower()]


def as_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("it must be a text")
    return value


def as_name(value: object) -> str:
    if not as_text(value).strip():
        raise ValueError("it must be a name")
    return as_text(value)


def as_texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ValueError("it must be a text or a list of texts")


def as_auto_or_integer(value: object) -> int | None:
    return None if value == "auto" else as_integer(value)


def as_gpu_layers(value: object) -> int | None:
    return ALL_LAYERS if value == "all" else as_auto_or_integer(value)


def as_shares(value: object) -> tuple[float, ...]:
    """`3,1`, or a list of numbers: proportions."""
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    return tuple(as_number(part) for part in parts)


def as_endpoints(value: object) -> tuple[str, ...]:
    """`host:port,host:port`, or a list."""
    return tuple(part.strip() for item in as_texts(value) for part in item.split(",") if part.strip())


def as_overflow(value: object) -> OverflowPolicy:
    try:
        return OverflowPolicy(str(value))
    except ValueError:
        raise ValueError(f"it must be one of {', '.join(OverflowPolicy)}") from None


def as_pair(value: object) -> tuple[float, float]:
    """`0.5,0.1`, or a list of two numbers; a single number leaves the second at its default (NaN here)."""
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    if not 1 <= len(parts) <= 2:
        raise ValueError("it must be one number, or two with a comma between")
    numbers = [as_number(part) for part in parts]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (numbers[0], math.nan)


def as_dry(value: object) -> tuple[float, ...]:
    """`multiplier[,base[,allowed_length[,last_n]]]`."""
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    if not 1 <= len(parts) <= 4:
        raise ValueError("it must be multiplier[,base[,allowed-length[,last-n]]]")
    return (*(as_number(part) for part in parts[:2]), *(as_whole(part) for part in parts[2:]))


def as_mirostat(value: object) -> tuple[float, ...]:
    """`version[,tau[,eta]]`."""
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    if not 1 <= len(parts) <= 3:
        raise ValueError("it must be version[,tau[,eta]]")
    return (as_whole(parts[0]), *(as_number(part) for part in parts[1:]))


def as_logit_bias(value: object) -> tuple[tuple[int, float], ...]:
    """`ID+BIAS`, `ID-BIAS`, `ID=BIAS` or `ID:BIAS` (bias may be `-inf`), one or a list of them."""
    import re

    pairs = []
    for item in as_texts(value):
        found = re.fullmatch(r"\s*(\d+)\s*(?:[=:]\s*([+-]?[\w.]+)|([+-][\w.]+))\s*", item)
        if not found:
            raise ValueError(f"{item!r} is not ID=BIAS (for example 1234=-inf or 1234+2.5)")
        pairs.append((int(found[1]), float(found[2] or found[3])))
    return tuple(pairs)


def as_order(value: object) -> tuple[str, ...]:
    parts = value.replace(";", ",").split(",") if isinstance(value, str) else as_texts(value)
    return tuple(part.strip().replace("-", "_") for part in parts if part.strip())
