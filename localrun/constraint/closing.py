"""A short way to the end of a JSON value that has been begun.

Knows JSON's punctuation and llguidance's matcher; knows no schema. The way is found greedily on a copy of the matcher:
take what the grammar forces, else the first byte of an order of preference that closes strings, objects and arrays
before it opens anything. It is short, not always the shortest. Invariant: what is returned leads to a state where the
output may end, because the matcher itself took every byte of it; the search stops after `MAX_CHOICES` choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from localrun.constraint.json_state import JsonState

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_CHOICES = 300
"""Bytes that are chosen, not forced, on the way; values that need more are not closed."""
_BYTES_PER_TOKEN = 16  # no vocabulary averages more; a completion of more bytes needs too many tokens

_PRINTABLE = bytes(range(0x20, 0x7F))
_CONTINUATION = bytes(range(0x80, 0xC0))  # the rest of a character that the last token began
_REST = bytes(range(256))
# Outside a string: close, separate, then the shortest values; what opens a container comes last.
_OUTSIDE = bytes(dict.fromkeys(b'}],:0123456789nft"eul-.' + _PRINTABLE.translate(None, b"[{ ") + b"[{ \n" + _REST))
# Inside a string: end it; else go on, each time with another character, since a pattern may wait for a certain one.
_UNREMARKABLE = bytes(dict.fromkeys(b"ab0-1 c:d.2eT/f@Z3n_" + _PRINTABLE.translate(None, b'"')))


def short_completion(
    matcher: LLMatcher, tokenizer: LLTokenizer, byte_tokens: Mapping[int, int], state: JsonState, max_tokens: int
) -> list[int] | None:
    """Tokens that complete the output, or None if no way with at most `MAX_CHOICES` choices was found.

    `matcher` is left as it is; `state` is where the output has come to; `byte_tokens` maps a byte to the token that is
    just it. The search also stops when it is plain that more than `max_tokens` tokens would be needed.
    """
    probe = matcher.deep_copy()
    added = bytearray()
    choices = 0
    while not probe.is_accepting():
        step = probe.compute_ff_bytes()
        if not step:
            choices += 1
            step = _preferred(probe, byte_tokens, state, choices)
        tokens = _tokens(tokenizer, step, byte_tokens)
        too_far = choices > MAX_CHOICES or len(added) > _BYTES_PER_TOKEN * max_tokens
        if too_far or not tokens or probe.try_consume_tokens(tokens) != len(tokens):
            return None
        added += step
        state = state.after(step)
    tokens = _tokens(tokenizer, bytes(added), byte_tokens)
    return tokens if matcher.validate_tokens(tokens) == len(tokens) else None


def _preferred(probe: LLMatcher, byte_tokens: Mapping[int, int], state: JsonState, turn: int) -> bytes:
    """The first byte in order of preference that may come next; nothing if none may."""
    order = _OUTSIDE
    if state.in_string:
        turn %= len(_UNREMARKABLE)
        order = b'"' + _UNREMARKABLE[turn:] + _UNREMARKABLE[:turn] + _CONTINUATION + _REST
    for byte in order:
        token = byte_tokens.get(byte)
        if token is not None and probe.validate_tokens([token]) == 1:
            return bytes([byte])
    return b""


def _tokens(tokenizer: LLTokenizer, data: bytes, byte_tokens: Mapping[int, int]) -> list[int]:
    """The fewest tokens for `data`, by longest match; byte by byte where it is no whole text, nothing if that fails."""
    if len(data) == 1:
        return [byte_tokens[data[0]]] if data[0] in byte_tokens else []
    try:
        return tokenizer.greedy_tokenize(data.decode())
    except UnicodeDecodeError:
        return [byte_tokens[byte] for byte in data] if all(byte in byte_tokens for byte in data) else []
