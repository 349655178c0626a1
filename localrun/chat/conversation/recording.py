"""One answer on its way from the model into the store.

Knows the events of a responder and the store's writer; decides nothing. Invariant: what the user saw is in the store,
however the answer ended; an answer that never said anything leaves no trace unless the model itself ended it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from localrun.errors import LocalrunError, StoreError
from localrun.responder import (
    Done,
    Event,
    ModelIdentity,
    ReasoningPiece,
    Result,
    TextPiece,
    Warning_,
    WarningRaised,
)
from localrun.store import AnswerWriter


@dataclass(frozen=True, slots=True)
class AnswerBegun:
    """The first word of an answer (or of a summary) has come; it now has a place in the tree."""

    message_id: int


def facts_before(model: ModelIdentity, settings: dict[str, Any]) -> dict[str, Any]:
    """What is known of an answer before its first token: enough to ask for it again."""
    return {"model": asdict(model), "settings": settings}


def _facts_after(result: Result) -> dict[str, Any]:
    """What is known of an answer at its end: the seed that would make it again, and what it cost."""
    facts = asdict(result)
    del facts["text"], facts["reasoning"], facts["finish"]
    return facts


class Recording:
    """Passes the events of one answer through and stores what they say."""

    def __init__(
        self,
        begin: Callable[[], AnswerWriter],
        facts: dict[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._begin = begin
        self._facts = facts
        self._writer: AnswerWriter | None = None
        self._told = False
        self._clock = clock
        self._thinking_since: float | None = None
        self._reasoning_s: float | None = None
        self._closed = False
        self.result: Result | None = None

    @property
    def message_id(self) -> int | None:
        return None if self._writer is None else self._writer.message_id

    def record(self, events: Iterator[Event]) -> Iterator[Event | AnswerBegun]:
        """Yield the events, and `AnswerBegun` before the first piece. Raises what the responder raises."""
        try:
            for event in events:
                if isinstance(event, TextPiece | ReasoningPiece):
                    self._time(event)
                    if self._writer is None:
                        self._writer = self._begin()
                        yield AnswerBegun(self._writer.message_id)
                    yield from self._save(event)
                elif isinstance(event, Done):
                    yield from self._end(event.result)
                yield event
        except (GeneratorExit, KeyboardInterrupt):
            self._close("interrupted", {})
            raise
        except BaseException as error:  # whatever went wrong, what was said is closed, and the error goes on
            self._close("error", {"error": error.message if isinstance(error, LocalrunError) else repr(error)})
            raise

    def _time(self, event: TextPiece | ReasoningPiece) -> None:
        """Note how long the model thought, from its first thought to its first word."""
        if isinstance(event, ReasoningPiece) and self._thinking_since is None:
            self._thinking_since = self._clock()
        elif isinstance(event, TextPiece) and self._thinking_since is not None and self._reasoning_s is None:
            self._reasoning_s = self._clock() - self._thinking_since

    def _save(self, event: TextPiece | ReasoningPiece) -> Iterator[Event]:
        assert self._writer is not None
        try:
            if isinstance(event, TextPiece):
                self._writer.write(text=event.text)
            else:
                self._writer.write(reasoning=event.text)
        except StoreError as error:
            # The text is kept in memory and saved again at each flush; the user is told once.
            if not self._told:
                self._told = True
                yield WarningRaised(Warning_("not-saved", f"the answer is not being saved: {error.message}"))

    def _end(self, result: Result) -> Iterator[AnswerBegun]:
        self.result = result
        if self._writer is None and result.finish != "interrupted":
            self._writer = self._begin()
            yield AnswerBegun(self._writer.message_id)
        if self._writer is not None:
            self._closed = True
            thinking = {} if self._reasoning_s is None else {"reasoning_s": self._reasoning_s}
            self._writer.finish(result.finish, {**self._facts, **_facts_after(result), **thinking})

    def _close(self, finish: str, more: dict[str, Any]) -> None:
        if self._writer is not None and not self._closed:
            self._closed = True
            self._writer.finish(finish, {**self._facts, **more})
