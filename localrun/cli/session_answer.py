"""`generate --session`: a script goes on with a saved chat.

Knows the store and conversations; knows no flags. Invariant: the question is saved before the model sees it, and the
answer while it comes, exactly as in the chat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from localrun.chat.conversation import AnswerBegun, Conversation, MessageAdded
from localrun.cli.chat import changed, last_model
from localrun.config import OPTIONS
from localrun.responder import Event, ModelInfo, Request, Responder
from localrun.store import Store

if TYPE_CHECKING:
    from localrun.params import ConstraintSpec


class SessionResponder:
    """Answers in a saved chat: the request's last message is the question, the chat has the rest."""

    def __init__(self, name: str) -> None:
        """`name` is `ID`, `last`, or `ID:NUMBER` for below one of its messages. Raises `UsageError`, `StoreError`."""
        self._store = Store.open()
        try:
            self.conversation = Conversation.open(self._store, None, name)
        except BaseException:
            self._store.close()
            raise

    @property
    def model(self) -> str | None:
        """The model that answered last in this chat."""
        return last_model(self.conversation)

    def attach(self, responder: Responder, flags: Mapping[str, Any], constraint: ConstraintSpec | None) -> None:
        """Let `responder` answer, with the chat's settings and what the flags change, for this time only."""
        given = {name: value for name, value in flags.items() if name in OPTIONS and name != "model"}
        settings = changed(self.conversation.settings, given)
        self.conversation.responder = responder
        self.conversation.settings = replace(settings, params=replace(settings.params, constraint=constraint))

    @property
    def info(self) -> ModelInfo:
        return self._responder.info

    def respond(self, request: Request) -> Iterator[Event]:
        """Yield the events of the answer. Raises what the conversation raises, a full context among it."""
        for event in self.conversation.ask(request.messages[-1].content):
            if not isinstance(event, MessageAdded | AnswerBegun):
                yield event

    def stop(self) -> None:
        self.conversation.stop()

    def count_tokens(self, request: Request) -> int:
        return self._responder.count_tokens(request)

    def close(self) -> None:
        """Close the store; the responder belongs to whoever attached it."""
        self._store.close()

    @property
    def _responder(self) -> Responder:
        assert self.conversation.responder is not None, "a responder is attached before anything is asked"
        return self.conversation.responder
