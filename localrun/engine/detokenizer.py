"""The bytes of one sequence's tokens, turned into text that may be shown.

Knows UTF-8 and stop strings; knows neither vocabularies nor special tokens (the engine never pushes those). A
character appears when its last byte has arrived; text that may be the beginning of a stop string appears when it
turns out not to be. Invariant: what `push` and `finish` return, joined, depends on the bytes and never on how they
were cut into pieces.
"""

from __future__ import annotations

import codecs


class Detokenizer:
    """Text of one sequence. Every `push` costs time proportional to its piece.

    The stop string whose last character comes first ends the text; of two that end together, the longer one. Bytes
    that are no UTF-8 become U+FFFD as Python's incremental decoder has it. A character whose last bytes never come
    (the token limit fell inside it) is left out, so that the text can be continued later; `incomplete` holds its bytes.
    """

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        assert all(stops), "an empty stop string is refused before it gets here"
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = [_StopMatcher(stop) for stop in stops]
        self._first_characters = frozenset(stop[0] for stop in stops)
        self._held = ""
        self._stopped: str | None = None
        self._incomplete = b""

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text; None while none has."""
        return self._stopped

    @property
    def incomplete(self) -> bytes:
        """After `finish`: the bytes of a last character that was not completed."""
        return self._incomplete

    def push(self, piece: bytes) -> str:
        """Take the bytes of the next token, return the text that may be shown now. Nothing comes after a stop."""
        if self._stopped is not None:
            return ""
        text = self._decoder.decode(piece)
        if not self._held and self._first_characters.isdisjoint(text):
            return text
        return self._search(text)

    def finish(self) -> str:
        """Return the text that was held back, when the generation ends for any reason. Idempotent."""
        held, self._held = self._held, ""
        self._incomplete = self._incomplete or self._decoder.getstate()[0]
        self._decoder.reset()
        return held

    def _search(self, text: str) -> str:
        buffer = self._held + text
        for end, character in enumerate(text, len(self._held) + 1):
            n_matched = 0  # length of the longest stop string that ends here
            for stop in self._stops:
                if stop.advance(character) and len(stop.text) > n_matched:
                    n_matched, self._stopped = len(stop.text), stop.text
            if n_matched:
                self._held = ""
                self._decoder.reset()  # an unfinished character after the stop string belongs to nobody
                return buffer[: end - n_matched]
        n_shown = len(buffer) - max(stop.n_matched for stop in self._stops)
        self._held = buffer[n_shown:]
        return buffer[:n_shown]


class _StopMatcher:
    """Finds one stop string in a stream of characters (Knuth, Morris and Pratt, 1977)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.n_matched = 0
        """How many of its first characters the stream ends with."""
        self._fallback = [0] * len(text)  # [i]: the longest proper prefix of text that text[: i + 1] ends with
        for i in range(1, len(text)):
            self._fallback[i] = self._extend(self._fallback[i - 1], text[i])

    def advance(self, character: str) -> bool:
        """Take one more character; True when the stop string is complete, which ends the search."""
        self.n_matched = self._extend(self.n_matched, character)
        return self.n_matched == len(self.text)

    def _extend(self, n_matched: int, character: str) -> int:
        while n_matched and self.text[n_matched] != character:
            n_matched = self._fallback[n_matched - 1]
        return n_matched + (self.text[n_matched] == character)
