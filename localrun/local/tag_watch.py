"""The texts that begin a tool call, looked for in what a model writes, special tokens included.

Knows texts and whether they may be shown; knows no tokens. Invariant: what is let through, joined, is what came in, up
to the first tag; nothing that may be the beginning of a tag is let through before that is settled.
"""

from __future__ import annotations

from typing import NamedTuple


class Piece(NamedTuple):
    """Text of one token. A hidden one is the written form of a special token."""

    text: str
    hidden: bool


class TagWatch:
    """The state of one answer."""

    def __init__(self, tags: tuple[str, ...]) -> None:
        assert all(tags), "a tag is some text"
        self._tags = tags
        self._held: list[Piece] = []
        self.found: str | None = None
        """The tag that came; nothing is let through after it."""

    def push(self, piece: Piece) -> list[Piece]:
        """Take the text of one token, return what may go on now. Of tags that end together the longer one counts."""
        if self.found is not None:
            return []
        n_before = sum(len(held.text) for held in self._held)
        self._held.append(piece)
        text = "".join(held.text for held in self._held)
        for end in range(n_before + 1, len(text) + 1):
            ending = [tag for tag in self._tags if text.endswith(tag, 0, end)]
            if ending:
                self.found = max(ending, key=len)
                let_through = self._take(end - len(self.found))
                self._held.clear()
                return let_through
        return self._take(len(text) - self._n_open(text))

    def finish(self) -> list[Piece]:
        """What was held back, when the output has ended."""
        held, self._held = self._held, []
        return held

    def _n_open(self, text: str) -> int:
        """Length of the longest end of the text that may be the beginning of a tag."""
        longest = min(len(text), max(map(len, self._tags)) - 1)
        return next((n for n in range(longest, 0, -1) if any(tag.startswith(text[-n:]) for tag in self._tags)), 0)

    def _take(self, n: int) -> list[Piece]:
        """The first `n` held characters."""
        taken: list[Piece] = []
        while n > 0:
            piece = self._held.pop(0)
            if len(piece.text) > n:
                self._held.insert(0, Piece(piece.text[n:], piece.hidden))
                piece = Piece(piece.text[:n], piece.hidden)
            taken.append(piece)
            n -= len(piece.text)
        return taken
