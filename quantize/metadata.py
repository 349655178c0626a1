"""Short constructors for GGUF values. Invariant: a value made here fits the type it is made for."""

from __future__ import annotations

from collections.abc import Sequence

from gguf.constants import GGUFValueType

from quantize.model import MetadataValue

Metadata = dict[str, MetadataValue]


def u32(value: int) -> MetadataValue:
    return MetadataValue(int(value), GGUFValueType.UINT32)


def f32(value: float) -> MetadataValue:
    return MetadataValue(float(value), GGUFValueType.FLOAT32)


def boolean(value: bool) -> MetadataValue:
    return MetadataValue(bool(value), GGUFValueType.BOOL)


def string(value: str) -> MetadataValue:
    return MetadataValue(value, GGUFValueType.STRING)


def strings(values: Sequence[str] | Sequence[bytes]) -> MetadataValue:
    return MetadataValue(list(values), GGUFValueType.ARRAY, GGUFValueType.STRING)


def i32s(values: Sequence[int]) -> MetadataValue:
    return MetadataValue([int(v) for v in values], GGUFValueType.ARRAY, GGUFValueType.INT32)


def f32s(values: Sequence[float]) -> MetadataValue:
    return MetadataValue([float(v) for v in values], GGUFValueType.ARRAY, GGUFValueType.FLOAT32)


def booleans(values: Sequence[bool]) -> MetadataValue:
    return MetadataValue([bool(v) for v in values], GGUFValueType.ARRAY, GGUFValueType.BOOL)
