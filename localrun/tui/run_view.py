"""Shows a run of the conversation on the transcript and the status line, update by update.

Knows updates and widgets; starts and stops nothing. Invariant: whatever order updates come in, a message is shown once,
under its parent; a path that changed is shown anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from localrun.chat.conversation import AnswerBegun, Conversation, MessageAdded, Room
from localrun.chat.conversation.meter import finish_words, meter_words
from localrun.responder import (
    Done,
    LoadProgress,
    PrefillProgress,
    ReasoningPiece,
    Result,
    TextPiece,
    WarningRaised,
)
from localrun.store import Node, Tree
from localrun.tui.bridge import Update
from localrun.tui.widgets.message import AnswerView, MarkView, MessageView, Place, UserView
from localrun.tui.widgets.notice import Notice
from localrun.tui.widgets.reasoning import Reasoning
from localrun.tui.widgets.status_line import StatusLine
from localrun.tui.widgets.transcript import SHOWN_MESSAGES, Transcript, first_shown


class RunView:
    """The transcript of one conversation, kept up to date."""

    def __init__(
        self,
        conversation: Conversation,
        transcript: Transcript,
        status: StatusLine,
        *,
        warn: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.conversation = conversation
        self._transcript = transcript
        self._status = status
        self._warn = warn
        self._clock = clock
        self._shown: list[int] = []
        self._n_shown = SHOWN_MESSAGES
        self._growing: MessageView | None = None
        self._thinking_since: float | None = None
        self._n_prompt = 0

    # The path as a whole

    async def show_path(self, growing_id: int | None = None) -> None:
        """Show the current path anew; the message `growing_id` begins empty, its text comes as updates."""
        if self.conversation.session is None:
            self._shown = []
            return
        tree = self.conversation.tree
        path = self.conversation.path
        start = first_shown(len(path), self._n_shown)
        views = [view_of(node, tree, is_growing=node.id == growing_id) for node in path[start:]]
        await self._transcript.show(views, start)
        self._shown = [node.id for node in path]

    async def show_earlier(self) -> None:
        """Mount twice as much of a long path."""
        self._n_shown *= 2
        anchor = next(iter(self._transcript.views), None)
        await self.show_path(self._growing.message_id if self._growing is not None else None)
        if anchor is not None and (view := self._transcript.view(anchor.message_id)) is not None:
            self._transcript.release_anchor()
            view.scroll_visible(animate=False, top=True)

    # One update after another

    async def apply(self, update: Update) -> None:
        """Show what an update says."""
        if isinstance(update, TextPiece):
            await self._text(update.text)
        elif isinstance(update, ReasoningPiece):
            await self._reasoning(update.text)
        elif isinstance(update, PrefillProgress):
            reused = f" · reused {update.cached:,}" if update.cached else ""
            self._status.set(activity=f"reading {update.done:,} of {update.total:,} tokens{reused}")
            self._n_prompt = update.total
        elif isinstance(update, LoadProgress):
            if update.fraction < 1:
                self._status.set(activity=f"loading {update.fraction:.0%}")
        elif isinstance(update, MessageAdded | AnswerBegun):
            await self._added(update)
        elif isinstance(update, WarningRaised):
            self._warn(update.warning.message)
        elif isinstance(update, Done):
            await self._done(update.result)

    async def end(self) -> None:
        """The run is over: nothing grows any more."""
        await self._finish_growing()
        self._status.set(activity="")

    async def show_notice(self, notice: Notice) -> None:
        await self.clear_notices()
        if self._transcript.is_attached:  # it has gone when the user has left meanwhile
            await self._transcript.mount(notice)

    async def clear_notices(self) -> None:
        await self._transcript.query(Notice).remove()

    def writing(self, pieces_per_s: float, n_pieces: int) -> None:
        """Show the speed of the running answer, and how the context fills."""
        if self._growing is not None:
            responder = self.conversation.responder
            limit = responder.info.context_limit if responder is not None else 0
            self._status.set(room=Room(self._n_prompt + n_pieces, 0, limit))
            speed = f" {pieces_per_s:.1f} tokens/s" if pieces_per_s else ""
            self._status.set(activity=f"{'thinking' if self._thinking_since is not None else 'writing'}{speed}")

    async def _added(self, update: MessageAdded | AnswerBegun) -> None:
        await self._finish_growing()
        grows = isinstance(update, AnswerBegun)
        known = self._transcript.view(update.message_id)
        if known is None:
            tree = self.conversation.tree
            node = tree.nodes[update.message_id]
            if self._shown[-1:] == ([] if node.parent_id is None else [node.parent_id]):
                await self._transcript.add(view_of(node, tree, is_growing=grows))
                self._shown.append(node.id)
            else:
                await self.show_path(update.message_id if grows else None)
            known = self._transcript.view(update.message_id)
        if grows:
            self._growing = known
            self._thinking_since = None
        else:
            self._transcript.anchor()

    async def _text(self, text: str) -> None:
        view = self._growing
        if self._thinking_since is not None and isinstance(view, AnswerView) and view.reasoning is not None:
            view.reasoning.finish(self._clock() - self._thinking_since, 0)
            self._thinking_since = None
        if isinstance(view, AnswerView):
            await view.append(text)
        elif isinstance(view, MarkView):
            view.append(text)

    async def _reasoning(self, text: str) -> None:
        if self._thinking_since is None:
            self._thinking_since = self._clock()
        if isinstance(self._growing, AnswerView):
            await self._growing.append_reasoning(text, self._clock() - self._thinking_since)

    async def _done(self, result: Result) -> None:
        view = self._growing
        if isinstance(view, AnswerView):
            if view.reasoning is not None:
                seconds = view.reasoning.seconds
                view.reasoning.finish(seconds, result.usage.reasoning_tokens)
            view.set_footer(answer_footer(result.finish))
        await self._finish_growing()
        room = Room(result.context_used, 0, result.context_limit) if result.context_limit else None
        self._status.set(meter=meter_words(result), room=room, activity="")

    async def _finish_growing(self) -> None:
        view, self._growing = self._growing, None
        self._thinking_since = None
        if isinstance(view, AnswerView):
            await view.finish()


def view_of(node: Node, tree: Tree, *, is_growing: bool = False) -> MessageView:
    """The view of a stored message; a growing one begins empty."""
    place = place_of(node, tree)
    if node.kind == "user":
        return UserView(node.id, node.text, place, node.attachments)
    if node.kind != "assistant":
        return MarkView(node.id, node.kind, "" if is_growing else node.text)
    if is_growing:
        return AnswerView(node.id, "", place)
    reasoning = _stored_reasoning(node)
    return AnswerView(node.id, node.text, place, reasoning=reasoning, footer=answer_footer(node.finish))


def place_of(node: Node, tree: Tree) -> Place:
    """Where the message stands among its alternatives."""
    siblings = [other.id for other in tree.siblings(node.id) if other.kind == node.kind]
    return Place(siblings.index(node.id) + 1, len(siblings))


def answer_footer(finish: str | None) -> str:
    """How the answer ended, and the key that goes on with it."""
    words = finish_words(finish)
    return f"{words} · ^g goes on" if words else ""


def _stored_reasoning(node: Node) -> Reasoning | None:
    if not node.reasoning:
        return None
    usage: Any = node.facts.get("usage")
    n_tokens = usage.get("reasoning_tokens", 0) if isinstance(usage, dict) else 0
    seconds = node.facts.get("reasoning_s")
    return Reasoning(
        node.reasoning, seconds=seconds if isinstance(seconds, float) else None, n_tokens=int(n_tokens), done=True
    )
