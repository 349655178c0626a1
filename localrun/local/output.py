"""Tokens of one answer → reasoning and text, for whoever listens.

Knows UTF-8, reasoning tags and stop strings; knows no template and no queue. Invariants: pieces are whole characters
in order, control tokens are shown to nobody, and stop strings are looked for in the answer only.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

from localrun.chat.reasoning import ReasoningFormat
from localrun.chat.reasoning_split import Part, ReasoningSplitter
from localrun.engine.detokenizer import Detokenizer
from localrun.responder import ReasoningPiece, TextPiece


class AnswerOutput:
    """The engine's `Output` for one answer. Keeps the whole text and reasoning."""

    def __init__(
        self,
        emit: Callable[[TextPiece | ReasoningPiece], None],
        *,
        stops: tuple[str, ...] = (),
        form: ReasoningFormat | None = None,
        in_reasoning: bool = False,
        budget: int | None = None,
    ) -> None:
        self._emit = emit
        self._form = form
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._splitter = ReasoningSplitter(form, in_reasoning=in_reasoning, budget=budget)
        self._detokenizer = Detokenizer(stops)
        self._closed_by_force = False
        self._text: list[str] = []
        self._reasoning: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def reasoning_tokens(self) -> int:
        return self._splitter.reasoning_tokens

    @property
    def over_budget(self) -> bool:
        """Whether the reasoning was closed by force."""
        return self._closed_by_force

    @property
    def stopped(self) -> str | None:
        return self._detokenizer.stopped

    @property
    def constrained(self) -> bool:
        return not self._splitter.in_reasoning

    def push(self, token: int, piece: bytes, control: bool) -> None:
        if self._form is None:
            if not control:
                self._show(self._detokenizer.push(piece))
            return
        visible = not control or self._form.is_marker(piece.decode("utf-8", "replace"))
        self._split(self._splitter.push(self._decoder.decode(piece) if visible else ""))

    def finish(self) -> None:
        self._split(self._splitter.finish())
        self._show(self._detokenizer.finish())

    def forced_text(self) -> bytes:
        if self._form is None or self._closed_by_force or not self._splitter.is_over_budget:
            return b""
        self._closed_by_force = True
        return self._form.closing_text

    def _split(self, parts: list[Part]) -> None:
        for part in parts:
            if part.kind == "reasoning":
                self._reasoning.append(part.text)
                self._emit(ReasoningPiece(part.text))
            else:
                self._show(self._detokenizer.push(part.text.encode("utf-8", "surrogatepass")))

    def _show(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._emit(TextPiece(text))
