"""A conversation: what the user does with it, on one responder and one store.

Knows the tree, the settings and the room in the context; knows no screen and no engine. Invariant: what the user wrote
is in the store before the model sees it, and the context is never cut without a mark in the tree that the user can see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from localrun.chat.conversation.prompt import applied_mark, kept, messages_of
from localrun.chat.conversation.recording import AnswerBegun, Recording, facts_before
from localrun.chat.conversation.room import ContextFullError, Room, cut, measure, surely_fits, transcript
from localrun.chat.conversation.settings import ChatSettings, from_facts, to_facts
from localrun.chat.conversation.summary import summarize
from localrun.chat.messages import Message
from localrun.errors import EngineError, UsageError
from localrun.responder import Event, Request, Responder, Result
from localrun.store import AnswerWriter, Attachment, Node, Session, Store, Tree

MakeRoom = Literal["compact", "shift", "branch"]

_KEEP_SHARE = 4
"""Compacting keeps the newest turns word for word, as far as they take a quarter of the context."""
_SHIFT_SHARE = 2
"""Shifting goes down to half of the context, so that it happens rarely and the prefix stays the same in between."""


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """A message of the user's, or a mark, is now at the end of the path."""

    message_id: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that has not been sent."""

    text: str
    attachments: tuple[Attachment, ...] = ()


ConversationEvent = Event | MessageAdded | AnswerBegun


class Conversation:
    """One session and the model that talks in it. Used by one thread at a time; `stop` may come from any."""

    def __init__(
        self, store: Store, responder: Responder | None, settings: ChatSettings, session: Session | None = None
    ) -> None:
        """`session` None: a new one, which appears in the store with its first message."""
        self.store = store
        self.responder = responder
        self.settings = settings
        self.queue: deque[Draft] = deque()
        self.last_result: Result | None = None
        self._session = session
        # Where this conversation is: another process in the same session does not move it.
        self._head_id = None if session is None else session.head_id

    @classmethod
    def open(cls, store: Store, responder: Responder | None, name: str) -> Conversation:
        """Go on with a session: `ID`, `last`, or `ID:NUMBER` for below one of its messages.

        Raises `UsageError` for a name that is none, `StoreError`.
        """
        session_name, _, number = name.partition(":")
        session = store.resolve(session_name)
        conversation = cls(store, responder, from_facts(session.settings), session)
        if number:
            node = conversation.tree.numbered(int(number)) if number.isdecimal() else None
            if node is None:
                raise UsageError(
                    f"session {session.id} has no message {number!r}",
                    hint=f"`localrun sessions show {session.id}` numbers them",
                )
            conversation._move(node.id)
        return conversation

    @property
    def session(self) -> Session | None:
        """The session as it is now; None before the first message."""
        return None if self._session is None else self.store.session(self._session.id)

    @property
    def tree(self) -> Tree:
        """A snapshot of all messages. Only of a conversation that has begun."""
        assert self._session is not None, "a conversation without messages has no tree"
        return self.store.tree(self._session.id)

    @property
    def path(self) -> tuple[Node, ...]:
        """The messages from the first one to where the user is."""
        return () if self._session is None else self.tree.path(self._head_id)

    def change_settings(self, settings: ChatSettings) -> None:
        """Use other settings from the next answer on."""
        self.settings = settings
        if self._session is not None:
            self.store.save_settings(self._session.id, to_facts(settings))

    def room(self) -> Room | None:
        """How much of the context the conversation takes as it stands; None if finding out would cost a request."""
        responder = self._loaded()
        if not kept(self.path):
            return Room(0, 0, responder.info.context_limit)
        if responder.info.identity.path is None:
            return None
        return measure(responder, self._request(self.path))

    # What a user does

    def ask(self, text: str, attachments: Sequence[Attachment] = ()) -> Iterator[ConversationEvent]:
        """Send a message and yield the events of the answer.

        Raises `ContextFullError` when the user has to choose (the message is kept: `make_room`, then `answer`),
        and what the responder raises.
        """
        return self._send(self._head_id, text, attachments)

    def edit(
        self, message_id: int, text: str, attachments: Sequence[Attachment] | None = None
    ) -> Iterator[ConversationEvent]:
        """Say something else in place of a message of the user's: a branch beside it. None keeps its attachments."""
        node = self.tree.nodes[message_id]
        if node.kind != "user":
            raise UsageError(f"message {node.number} is not yours to edit", hint="regenerate an answer instead")
        return self._send(node.parent_id, text, node.attachments if attachments is None else attachments)

    def regenerate(self, message_id: int | None = None) -> Iterator[ConversationEvent]:
        """Answer again, beside the answer `message_id` (None: the last one)."""
        path = self.path
        if message_id is None and path and path[-1].kind != "assistant":
            return self.answer()  # the last question never got its answer
        answer = self.tree.nodes[message_id] if message_id is not None else path[-1] if path else None
        if answer is None or answer.kind != "assistant":
            raise UsageError("there is no answer to make again")
        return self._again(answer)

    def answer(self) -> Iterator[ConversationEvent]:
        """Answer the question at the end of the path."""
        words = kept(self.path)
        if not words or words[-1].kind != "user":
            raise UsageError("there is no question to answer")
        return self._answer()

    def continue_answer(self) -> Iterator[ConversationEvent]:
        """Go on with an answer that was stopped or cut off, from its last token."""
        words = kept(self.path)
        if not words or words[-1].kind != "assistant":
            raise UsageError("there is no answer to continue")
        if not words[-1].text and not words[-1].reasoning:
            raise UsageError("the answer was stopped before its first word", hint="regenerate it instead")
        return self._continue(words[-1])

    def switch(self, message_id: int, step: int) -> Node | None:
        """Go to the sibling `step` places further, where its branch was left; None if there is none."""
        tree = self.tree
        siblings = tree.siblings(message_id)
        place = [node.id for node in siblings].index(message_id) + step
        if not 0 <= place < len(siblings):
            return None
        leaf = tree.newest_leaf(siblings[place].id)
        self._move(leaf.id)
        return siblings[place]

    def go_to(self, message_id: int) -> None:
        """Go to where the branch through a message was left."""
        self._move(self.tree.newest_leaf(message_id).id)

    def stop(self) -> None:
        """End the running answer soon; its text stays."""
        if self.responder is not None:
            self.responder.stop()

    def enqueue(self, text: str, attachments: Sequence[Attachment] = ()) -> None:
        """Keep a message for when the running answer has ended."""
        self.queue.append(Draft(text, tuple(attachments)))

    def make_room(self, how: MakeRoom) -> Iterator[ConversationEvent]:
        """Give way in the manner the user chose; then `answer` (or `continue_answer`) goes on.

        Raises `ContextFullError` with `can_make_room` False if nothing can give way.
        """
        if how == "compact":
            return self._compact()
        if how == "shift":
            return self._shift()
        return self._branch_off()

    # How it is done

    def _move(self, message_id: int | None) -> None:
        self._head_id = message_id
        self.store.set_head(self._begun().id, message_id)

    def _loaded(self) -> Responder:
        if self.responder is None:
            raise EngineError("no model is loaded", hint="choose one with /model")
        return self.responder

    def _begun(self) -> Session:
        if self._session is None:
            self._session = self.store.create_session(to_facts(self.settings))
        return self._session

    def _send(self, parent_id: int | None, text: str, attachments: Sequence[Attachment]) -> Iterator[ConversationEvent]:
        if not text.strip() and not attachments:
            raise UsageError("an empty message was not sent")
        session = self._begun()
        self._head_id = self.store.add(session.id, parent_id, "user", text, attachments=attachments)
        self.store.name_after_exchange(session.id, text)
        yield MessageAdded(self._head_id)
        yield from self.answer()

    def _request(self, path: Sequence[Node]) -> Request:
        return Request(self.settings.params, messages=messages_of(path, self.settings.system))

    def _answer(self) -> Iterator[ConversationEvent]:
        yield from self._ensure_room(lambda: self._request(self.path))
        session, path = self._begun(), self.path
        begin = partial(self.store.begin_answer, session.id, path[-1].id, self._facts())
        yield from self._record(begin, self._loaded().respond(self._request(path)))
        if self.last_result is not None:
            question = next((node.text for node in path if node.kind == "user"), "")
            self.store.name_after_exchange(session.id, question, self.last_result.text)

    def _again(self, answer: Node) -> Iterator[ConversationEvent]:
        came_from = self._head_id
        self._move(answer.parent_id)
        try:
            yield from self.answer()
        except ContextFullError:
            raise  # the user makes room, and `answer` goes on from here
        except BaseException:
            if self._head_id == answer.parent_id:
                self._move(came_from)  # nothing came of it: the old answer is still the one to look at
            raise
        if self._head_id == answer.parent_id:
            self._move(came_from)

    def _continue(self, node: Node) -> Iterator[ConversationEvent]:
        def request() -> Request:
            before = [other for other in self.path if other.id != node.id]
            return replace(self._request(before), prefill=node.text, prefill_reasoning=node.reasoning)

        yield from self._ensure_room(request)
        begin = partial(self.store.continue_answer, node.id, self._facts())
        yield from self._record(begin, self._loaded().respond(request()), moves=False)

    def _facts(self) -> dict[str, Any]:
        return facts_before(self._loaded().info.identity, to_facts(self.settings))

    def _record(
        self, begin: Callable[[], AnswerWriter], events: Iterator[Event], *, moves: bool = True
    ) -> Iterator[ConversationEvent]:
        """Pass the events of an answer through the store; a new message becomes the end of the path."""
        recording = Recording(begin, self._facts())
        self.last_result = None
        for event in recording.record(events):
            if moves and isinstance(event, AnswerBegun):
                self._head_id = event.message_id
            yield event
        self.last_result = recording.result

    def _ensure_room(self, request: Callable[[], Request]) -> Iterator[ConversationEvent]:
        """Do what the settings say when the context is full; raise `ContextFullError` when they say: ask."""
        responder = self._loaded()
        if surely_fits(responder, request()):
            return
        room = measure(responder, request())
        if not room.is_full:
            return
        if self.settings.on_full == "ask":
            raise ContextFullError(room)
        yield from self.make_room(self.settings.on_full)
        room = measure(responder, request())
        if room.is_full:
            raise ContextFullError(room, can_make_room=False)

    def _count(self, nodes: Sequence[Node]) -> int:
        return self._loaded().count_tokens(self._request(nodes))

    def _cut_point(self, budget: int) -> Node:
        path = self.path
        last = cut(path, budget, self._count)
        if last is None:
            raise ContextFullError(measure(self._loaded(), self._request(path)), can_make_room=False)
        return last

    def _compact(self) -> Iterator[ConversationEvent]:
        responder, session, path = self._loaded(), self._begun(), self.path
        last = self._cut_point(responder.info.context_limit // _KEEP_SHARE)
        head = path[-1].id
        begin = partial(self.store.begin_answer, session.id, head, self._facts(), kind="summary", covers_id=last.id)
        yield from self._record(begin, summarize(responder, _told(path, last)))
        if self.last_result is None or self.last_result.finish == "interrupted":
            self._move(head)  # a summary that was stopped stands for nothing

    def _shift(self) -> Iterator[ConversationEvent]:
        session, path = self._begun(), self.path
        last = self._cut_point(self._loaded().info.context_limit // _SHIFT_SHARE)
        n_left_out = 1 + [node.id for node in kept(path)].index(last.id)
        text = f"{n_left_out} earlier messages are left out from here on"
        self._head_id = self.store.add(session.id, path[-1].id, "shift", text, covers_id=last.id)
        yield MessageAdded(self._head_id)

    def _branch_off(self) -> Iterator[ConversationEvent]:
        session, path = self._begun(), self.path
        question = next((node for node in reversed(path) if node.kind == "user"), None)
        if question is None or question.parent_id is None:
            raise ContextFullError(measure(self._loaded(), self._request(path)), can_make_room=False)
        self._head_id = self.store.add(session.id, None, "user", question.text, attachments=question.attachments)
        yield MessageAdded(self._head_id)


def _told(path: Sequence[Node], last: Node) -> list[str]:
    """What a new summary has to tell, up to the message `last`: the summary in force, and what was said since."""
    mark = applied_mark(path)
    words = kept(path)
    covered = words[: 1 + [node.id for node in words].index(last.id)]
    before = [Message("system", mark.text)] if mark is not None and mark.kind == "summary" else []
    return transcript([*before, *messages_of(covered)])
