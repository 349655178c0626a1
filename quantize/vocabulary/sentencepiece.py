"""A reader for `tokenizer.model`: the few fields of SentencePiece's ModelProto that a vocabulary needs.

Field numbers from sentencepiece_model.proto (github.com/google/sentencepiece, src/). Knows the protobuf wire format and
nothing of GGUF. Invariant: a file that is cut short or is no SentencePiece model is refused, never half read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from quantize.errors import SourceError


class PieceType(IntEnum):
    """As in the file; the values are GGUF's token types, too."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class ModelType(IntEnum):
    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    score: float
    type: PieceType


@dataclass(slots=True)
class SentencePieceModel:
    pieces: list[Piece] = field(default_factory=list)
    model_type: ModelType = ModelType.UNIGRAM
    add_dummy_prefix: bool = True


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Parse a `tokenizer.model`. Raises SourceError when it is none (some checkpoints name a tiktoken file so)."""
    model = SentencePieceModel()
    try:
        for number, value in _fields(memoryview(path.read_bytes())):
            if number == 1:
                model.pieces.append(_piece(_bytes(value)))
            elif number == 2:
                for inner, setting in _fields(_bytes(value)):
                    if inner == 3:
                        model.model_type = ModelType(_int(setting))
            elif number == 3:
                for inner, setting in _fields(_bytes(value)):
                    if inner == 3:
                        model.add_dummy_prefix = bool(_int(setting))
    except (ValueError, IndexError, struct.error) as error:
        raise SourceError(f"{path.name} is no SentencePiece model: {error}") from error
    if not model.pieces:
        raise SourceError(f"{path.name} is no SentencePiece model: it has no pieces")
    return model


def _piece(data: memoryview) -> Piece:
    text, score, kind = "", 0.0, PieceType.NORMAL
    for number, value in _fields(data):
        if number == 1:
            text = bytes(_bytes(value)).decode("utf-8")
        elif number == 2:
            score = struct.unpack("<f", _bytes(value))[0]
        elif number == 3:
            kind = PieceType(_int(value))
    return Piece(text, score, kind)


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Field numbers and values of one message: integers for varints, bytes for everything else."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"unknown wire type {wire} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"it ends inside a field at byte {at}")
        yield number, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError(f"a number is too long at byte {at}")


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a field has the wrong type")
    return value


def _int(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise ValueError("a field has the wrong type")
    return value
