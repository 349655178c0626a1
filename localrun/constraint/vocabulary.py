"""The vocabulary as llguidance wants it.

Knows a vocabulary's tokens and llguidance's tokenizer; knows no grammar. Invariant: tokens that are no text (control,
unknown, unused, empty) can never match text in a grammar; they are reachable by their id alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from localrun.constraint.tokens import VocabularyTokens

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_SPECIAL = b"\xff"  # llguidance's mark for a token that is no text; the byte occurs in no UTF-8 text
_STRING_SLICE = r"[^\"\\\x00-\x1F\x7F]{1,30}"


class _Wrapper:
    """What `LLTokenizer` reads: the bytes of all tokens, and a function from bytes to ids."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: list[bytes], eos: int, special: list[int], encode: Callable[[bytes], list[int]]) -> None:
        self.tokens = tokens
        self.eos_token_id = eos
        self.special_token_ids = special
        self._encode = encode

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text.encode() if isinstance(text, str) else text)


def build_tokenizer(tokens: VocabularyTokens, encode: Callable[[bytes], list[int]]) -> LLTokenizer:
    """llguidance's tokenizer for a vocabulary; `encode` gives the model's own tokens for a text, once it is asked.

    One slice, "up to 30 characters of a JSON string", costs a tenth more to build and makes masks inside strings of
    limited length fifty times cheaper (3 ms to 0.05 ms at 262k tokens). llguidance's default slices cost twice as much.
    """
    from llguidance import LLTokenizer

    pieces, no_text = tokens.pieces, tokens.no_text
    marked = list(pieces)
    for token in no_text:
        marked[token] = _SPECIAL + (marked[token] or b"<%d>" % token)
    eog = list(tokens.eog) or [no_text[0] if no_text else 0]

    def encode_exactly(text: bytes) -> list[int]:
        found = encode(text)
        # llguidance takes it that tokens give back their text; some vocabularies put a space in front.
        if b"".join(pieces[token] for token in found) == text:
            return found
        return tokenizer.greedy_tokenize(text.decode("utf-8", "ignore"))

    wrapper = _Wrapper(marked, eog[0], list(no_text), encode_exactly)
    tokenizer = LLTokenizer(wrapper, eos_token=eog, slices=[_STRING_SLICE])  # type: ignore[arg-type]
    return tokenizer


class ByteTable:
    """A vocabulary of the 256 bytes and one end token: grammars can be compiled and texts checked without a model."""

    end = 256

    @property
    def n_tokens(self) -> int:
        return 257

    @property
    def eog_ids(self) -> frozenset[int]:
        return frozenset({self.end})

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b"<end>"

    def pieces(self) -> Sequence[bytes]:
        return [self.piece(token) for token in range(self.n_tokens)]

    def is_eog(self, token: int) -> bool:
        return token == self.end

    def is_control(self, token: int) -> bool:
        return token == self.end

    def encode(self, text: bytes, *, special: bool = False) -> list[int]:
        return list(text)


@functools.cache
def byte_tokenizer() -> LLTokenizer:
    """llguidance's tokenizer for `ByteTable`; immutable, so one serves everybody."""
    table = ByteTable()
    return build_tokenizer(VocabularyTokens.of(table), table.encode)
