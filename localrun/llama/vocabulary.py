"""Bytes ↔ token ids.

Knows llama.cpp's vocabulary handle; knows no templates. It only reads, so any thread may use it. Invariants: a piece
is always whole (the buffer grows to the size the library asks for), text is never parsed for special tokens unless
the caller says so, and no call adds BOS or EOS by itself.
"""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

from localrun.errors import EngineError

# Enough for nearly every token; longer ones exist (Qwen2 has 1,401 over 32 bytes) and are asked for again.
_PIECE_BYTES = 64


class Vocabulary:
    """The vocabulary of a loaded model (the engine's `TokenTable`)."""

    def __init__(self, lib: Any, handle: Any) -> None:
        self._lib = lib
        self.handle = handle

    @cached_property
    def n_tokens(self) -> int:
        return int(self._lib.llama_vocab_n_tokens(self.handle))

    @cached_property
    def eog_ids(self) -> frozenset[int]:
        """Every token that ends a generation: the model's EOS, EOT, EOM and their kin."""
        is_eog = self._lib.llama_vocab_is_eog
        handle = self.handle
        return frozenset(token for token in range(self.n_tokens) if is_eog(handle, token))

    @cached_property
    def bos(self) -> int | None:
        token = int(self._lib.llama_vocab_bos(self.handle))
        return token if token >= 0 else None

    @cached_property
    def eos(self) -> int | None:
        token = int(self._lib.llama_vocab_eos(self.handle))
        return token if token >= 0 else None

    @cached_property
    def adds_bos(self) -> bool:
        """Whether the model wants BOS before its prompt."""
        return bool(self._lib.llama_vocab_get_add_bos(self.handle)) and self.bos is not None

    def is_eog(self, token: int) -> bool:
        return bool(self._lib.llama_vocab_is_eog(self.handle, self._checked(token)))

    def is_control(self, token: int) -> bool:
        """Whether the token is no text: a control, unknown or unused token."""
        attributes = self._lib.llama_vocab_get_attr(self.handle, self._checked(token))
        no_text = self._lib.LLAMA_TOKEN_ATTR_CONTROL | self._lib.LLAMA_TOKEN_ATTR_UNKNOWN
        return bool(attributes & (no_text | self._lib.LLAMA_TOKEN_ATTR_UNUSED))

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """Every token that is no text, asked in bulk."""
        attributes = self._lib.llama_vocab_get_attr
        handle = self.handle
        no_text = self._lib.LLAMA_TOKEN_ATTR_CONTROL | self._lib.LLAMA_TOKEN_ATTR_UNKNOWN
        no_text |= self._lib.LLAMA_TOKEN_ATTR_UNUSED
        return frozenset(token for token in range(self.n_tokens) if attributes(handle, token) & no_text)

    def piece(self, token: int, *, special: bool = True) -> bytes:
        """The bytes of one token; with `special`, control tokens give their written form, else nothing.

        Source: `llama_token_to_piece`, whose negative answer is the size it needs.
        """
        self._checked(token)
        buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        size = self._lib.llama_token_to_piece(self.handle, token, buffer, _PIECE_BYTES, 0, special)
        if size < 0:
            buffer = ctypes.create_string_buffer(-size)
            size = self._lib.llama_token_to_piece(self.handle, token, buffer, -size, 0, special)
        return buffer.raw[:size]

    def pieces(self) -> list[bytes]:
        """The bytes of all tokens in order of their ids, control tokens in their written form."""
        to_piece = self._lib.llama_token_to_piece
        handle = self.handle
        buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        address = ctypes.addressof(buffer)
        read = ctypes.string_at
        result: list[bytes] = []
        for token in range(self.n_tokens):
            size = to_piece(handle, token, buffer, _PIECE_BYTES, 0, True)
            result.append(read(address, size) if size >= 0 else self.piece(token))
        return result

    def encode(self, text: bytes, *, special: bool = False) -> list[int]:
        """Token ids of `text` (UTF-8; NUL is text too). With `special`, written special tokens become themselves.

        Never adds BOS or EOS.
        """
        if not text:
            return []
        capacity = len(text) // 2 + 16
        while True:
            ids = (ctypes.c_int32 * capacity)()
            count = self._lib.llama_tokenize(self.handle, text, len(text), ids, capacity, False, special)
            if count >= 0:
                return ids[:count]
            if count == -(2**31):
                raise EngineError(f"a text of {len(text):,} bytes has too many tokens for the engine")
            capacity = -count

    def decode(self, tokens: list[int]) -> bytes:
        """The text of `tokens` as bytes; control tokens give their written form.

        Differs from joining pieces where the vocabulary drops a leading space. Source: `llama_detokenize`.
        """
        if not tokens:
            return b""
        ids = (ctypes.c_int32 * len(tokens))(*(self._checked(token) for token in tokens))
        capacity = 8 * len(tokens) + 64
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            size = self._lib.llama_detokenize(self.handle, ids, len(tokens), buffer, capacity, False, True)
            if size >= 0:
                return buffer.raw[:size]
            capacity = -size

    def _checked(self, token: int) -> int:
        if not 0 <= token < self.n_tokens:
            raise EngineError(f"the token id {token} is outside the vocabulary of {self.n_tokens:,} tokens")
        return token
