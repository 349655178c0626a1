"""Tokens of one sequence → text, without any notion of reasoning.

Knows the detokenizer and a function that takes text; knows no queue and no screen. Invariant: `emit` gets whole
characters, in order, and never a part of a stop string that came true.
"""

from __future__ import annotations

from collections.abc import Callable

from localrun.engine.detokenizer import Detokenizer


class TextOutput:
    """Everything is answer text. Control tokens are not shown."""

    constrained = True

    def __init__(self, emit: Callable[[str], None], stops: tuple[str, ...] = ()) -> None:
        self._emit = emit
        self._detokenizer = Detokenizer(stops)

    @property
    def stopped(self) -> str | None:
        return self._detokenizer.stopped

    def push(self, token: int, piece: bytes, control: bool) -> None:
        if not control and (text := self._detokenizer.push(piece)):
            self._emit(text)

    def finish(self) -> None:
        if text := self._detokenizer.finish():
            self._emit(text)

    def forced_text(self) -> bytes:
        return b""
