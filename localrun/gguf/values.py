"""Values of a GGUF file's metadata: scalars, and arrays that are read on demand.

Knows where an array lies in its file; the reader has checked that it lies there. Invariant: an array that nobody
looks at costs no memory, however long it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import overload

from localrun.errors import ModelFileError
from localrun.gguf.foreign import shown
from localrun.gguf.types import SCALAR_FORMATS, ValueType

_U64 = struct.Struct("<Q")

Scalar = int | float | bool | str


class GGUFArray(Sequence[Scalar]):
    """An array of the metadata, read from the file when its elements are first asked for.

    `len` is free. Strings that are not UTF-8 come with replacement characters.
    """

    def __init__(self, path: Path, element_type: int, count: int, start: int, end: int) -> None:
        self.element_type = ValueType(element_type)
        self._path = path
        self._count = count
        self._start = start
        self._end = end

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Scalar: ...
    @overload
    def __getitem__(self, index: slice) -> list[Scalar]: ...
    def __getitem__(self, index: int | slice) -> Scalar | list[Scalar]:
        return self.values[index]

    def __iter__(self) -> Iterator[Scalar]:
        return iter(self.values)

    def __repr__(self) -> str:
        return f"<{self._count} x {self.element_type.name}>"

    @cached_property
    def values(self) -> list[Scalar]:
        """All elements. Raises `ModelFileError` if the file has changed since its header was read."""
        if self.element_type != ValueType.STRING:
            letter = SCALAR_FORMATS[self.element_type]
            return list(struct.unpack(f"<{self._count}{letter}", self.packed()))
        return [text.decode("utf-8", "replace") for text in self.raw()]

    def raw(self) -> list[bytes]:
        """The strings as they lie in the file. Not kept. Raises as `values` does."""
        assert self.element_type == ValueType.STRING
        data, at, length_at = self.packed(), 0, _U64.unpack_from
        texts: list[bytes] = []
        for _ in range(self._count):
            start = at + 8
            at = start + length_at(data, at)[0]
            if at > len(data):
                raise self._changed()
            texts.append(data[start:at])
        return texts

    def packed(self) -> bytes:
        """All elements as they lie in the file. Not kept. Raises as `values` does."""
        with self._path.open("rb") as file:
            file.seek(self._start)
            data = file.read(self._end - self._start)
        if len(data) != self._end - self._start:
            raise self._changed()
        return data

    def _changed(self) -> ModelFileError:
        return ModelFileError(f"{shown(self._path)} was changed while it was in use")


Value = Scalar | GGUFArray
