"""What is being written: chips, pastes, completions, files named with @.

Knows the prompt and what surrounds it; sends nothing. Invariant: an attachment is read when it is attached, so what is
sent is what the user saw.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on
from textual.screen import Screen

from localrun.chat.conversation import Conversation
from localrun.chat.conversation.commands import as_typed
from localrun.chat.conversation.files import path_of, read_attachment
from localrun.errors import LocalrunError
from localrun.store import Attachment
from localrun.tui.telling import tells_errors
from localrun.tui.widgets.chips import Chip, ChipRemoved, Chips
from localrun.tui.widgets.completion import Completions, command_completions, file_completions
from localrun.tui.widgets.prompt import ChipRemovalWanted, CompletionKey, CompletionWanted, LongPaste, Prompt
from localrun.tui.words import attachment_words

if TYPE_CHECKING:
    from localrun.tui.app import ChatApp


class ComposingScreen(Screen[None]):
    """A screen with a prompt, chips and completions."""

    app: ChatApp
    conversation: Conversation

    def __init__(self, cwd: Path) -> None:
        super().__init__()
        self.attachments: list[Attachment] = []
        self.editing_id: int | None = None
        self.draft_before_edit = ""
        self.typed_at = 0.0
        """When the prompt changed last, on the monotonic clock."""
        self.is_letter_due = False
        """Whether something was typed that is not on the screen yet."""
        self.waits_for_enter = False
        """Whether what is queued waits for a key: an answer was stopped, and the next one does not begin by itself."""
        self._cwd = cwd
        self._n_pastes = 0

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    @property
    def unsent(self) -> str:
        """The words that wait, and those that are being written; an edit is made anew."""
        drafts = [draft.text for draft in self.conversation.queue]
        drafts.append(self.draft_before_edit if self.editing_id is not None else self.prompt.text)
        return "\n\n".join(draft for draft in drafts if draft.strip())

    def _note_typing(self) -> None:
        self.typed_at = time.monotonic()
        self.is_letter_due = True
        self.call_after_refresh(self._letter_shown)

    def _letter_shown(self) -> None:
        self.is_letter_due = False

    async def end_edit(self) -> None:
        """The message is not to be changed after all; what was written stays, or what stood there before comes back."""
        node = self.conversation.tree.nodes.get(self.editing_id) if self.editing_id is not None else None
        if node is not None and self.prompt.text == as_typed(node.text):
            self.prompt.text = self.draft_before_edit
        self.editing_id = None
        self.attachments = []
        await self.show_chips()

    def mentioned(self, text: str) -> list[Attachment]:
        """The files that the text names with @."""
        known = {attachment.name for attachment in self.attachments}
        words = [word[1:].rstrip(".,;:!?)") for word in text.split() if word.startswith("@") and len(word) > 1]
        paths = [path for path in (path_of(word, self._cwd) for word in words) if os.path.isfile(path)]
        return [read_attachment(path) for path in paths if path.name not in known]

    @tells_errors
    async def show_chips(self) -> None:
        chips = []
        if self.editing_id is not None:
            node = self.conversation.tree.nodes[self.editing_id]
            chips.append(Chip("edit", f"editing message {node.number}: Enter makes a branch", is_state=True))
        chips += [Chip(f"file {index}", attachment_words(file)) for index, file in enumerate(self.attachments)]
        for index, draft in enumerate(self.conversation.queue):
            how = "" if index or not self.waits_for_enter else "Enter sends "
            chips.append(Chip(f"queue {index}", f"{how}queued: {' '.join(draft.text.split())}", is_state=True))
        await self.query_one(Chips).show(chips)

    async def attach(self, attachment: Attachment) -> None:
        """Send this along with the next message."""
        self.attachments.append(attachment)
        await self.show_chips()

    @on(ChipRemoved)
    @tells_errors
    async def _chip_removed(self, event: ChipRemoved) -> None:
        event.stop()
        what, _, index = event.key.partition(" ")
        if what == "edit":
            await self.end_edit()
        elif what == "file":
            del self.attachments[int(index)]
        elif int(index) < len(self.conversation.queue):
            del self.conversation.queue[int(index)]
        await self.show_chips()

    @on(ChipRemovalWanted)
    async def _last_chip_removed(self) -> None:
        if self.attachments:
            self.attachments.pop()
            await self.show_chips()

    @on(LongPaste)
    async def _pasted(self, event: LongPaste) -> None:
        event.stop()
        self._n_pastes += 1
        await self.attach(Attachment(f"pasted-{self._n_pastes}.txt", event.text))

    @on(CompletionWanted)
    def _complete(self, event: CompletionWanted) -> None:
        event.stop()
        self._note_typing()
        completions = self.query_one(Completions)
        if event.kind == "command" and self.editing_id is None:
            completions.offer(event.prefix, command_completions(event.prefix))
        elif event.kind == "file":
            completions.offer(event.prefix, file_completions(event.prefix, self._cwd))
        else:
            completions.close()
        self.prompt.offered = CompletionWanted(event.kind, event.prefix) if completions.is_open else None

    @on(CompletionKey)
    async def _completion_key(self, event: CompletionKey) -> None:
        event.stop()
        completions = self.query_one(Completions)
        if event.action in ("up", "down"):
            completions.move(-1 if event.action == "up" else 1)
            return
        is_current = self.prompt.offered == self.prompt.wanted  # otherwise more was typed: nothing of it is overwritten
        chosen = completions.chosen if event.action == "take" and is_current else None
        prefix = completions.prefix
        completions.close()
        self.prompt.offered = None
        if chosen is None:
            return
        if self.prompt.text.startswith("/"):
            self.prompt.complete(prefix, chosen.replacement)
            if not chosen.replacement.endswith(" "):
                self.prompt.action_submit()
        elif chosen.replacement.endswith("/"):
            self.prompt.complete(prefix, chosen.replacement)
        else:
            self.prompt.complete(f"@{prefix}", "")
            try:
                await self.attach(read_attachment(path_of(chosen.replacement, self._cwd)))
            except LocalrunError as error:
                self.app.show_error(error)
