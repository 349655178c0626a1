"""Tokens of one answer → reasoning and text, for whoever listens.

Knows UTF-8, reasoning tags and stop strings; knows no template and no queue. Invariants: pieces are whole characters
in order, control tokens are shown only to who asked for them by name, and stop strings and tags are looked for outside
the reasoning only.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

from localrun.chat.reasoning import ReasoningFormat
from localrun.chat.reasoning_split import Part, ReasoningSplitter
from localrun.engine.detokenizer import Detokenizer
from localrun.local.tag_watch import Piece, TagWatch
from localrun.responder import ReasoningPiece, TextPiece


class AnswerOutput:
    """The engine's `Output` for one answer. Keeps the whole text and reasoning."""

    def __init__(
        self,
        emit: Callable[[TextPiece | ReasoningPiece], None],
        *,
        stops: tuple[str, ...] = (),
        tags: tuple[str, ...] = (),
        shows_special: bool = False,
        form: ReasoningFormat | None = None,
        in_reasoning: bool = False,
        budget: int | None = None,
    ) -> None:
        """`tags` end the output wherever no reasoning is; with `shows_special`, special tokens are part of the text."""
        self._emit = emit
        self._form = form
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._splitter = ReasoningSplitter(form, in_reasoning=in_reasoning, budget=budget)
        self._detokenizer = Detokenizer(stops)
        self._watch = TagWatch(tags) if tags else None
        self._shows_special = shows_special
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
        return (self._watch.found if self._watch is not None else None) or self._detokenizer.stopped

    @property
    def constrained(self) -> bool:
        return not self._splitter.in_reasoning

    def push(self, token: int, piece: bytes, control: bool) -> None:
        if self._form is None and self._watch is None:
            if not control or self._shows_special:
                self._show(self._detokenizer.push(piece))
            return
        text = piece.decode("utf-8", "replace") if control else self._decoder.decode(piece)
        self._watched(Piece(text, hidden=control and not self._is_shown(text)))

    def finish(self) -> None:
        if self._watch is not None:
            self._take(self._watch.finish())
        self._split(self._splitter.finish())
        self._show(self._detokenizer.finish())

    def forced_text(self) -> bytes:
        if self._form is None or self._closed_by_force or not self._splitter.is_over_budget:
            return b""
        self._closed_by_force = True
        return self._form.closing_text

    def _is_shown(self, special: str) -> bool:
        return self._shows_special or (self._form is not None and self._form.is_marker(special))

    def _watched(self, piece: Piece) -> None:
        if self._watch is None:
            self._take([piece])
        elif self._splitter.in_reasoning or (
            # Where each part has a header, the tag is part of one.
            self._form is not None and self._form.has_channels and self._splitter.in_answer
        ):
            self._take([*self._watch.finish(), piece])
        else:
            self._take(self._watch.push(piece))

    def _take(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            self._split(self._splitter.push("" if piece.hidden else piece.text))

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
