"""The full-screen chat as a process of its own, on a scripted model: for tests of the real terminal.

    python -m tests.tui.program DATABASE [SESSION]

The model counts to twenty, a word in 60 ms, and goes on where it was stopped.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from localrun.chat.conversation import ChatSettings, Conversation
from localrun.responder import Event, Request, TextPiece
from localrun.store import Store
from localrun.tui.app import ChatApp
from tests.tui.scripted import ScriptedResponder
from tests.tui.stage import ScriptedShelf

WORDS = [f"n{number} " for number in range(1, 21)]


class Counting(ScriptedResponder):
    """Counts, slowly enough to be stopped, and goes on after what it is given."""

    def respond(self, request: Request) -> Iterator[Event]:
        said = len(request.prefill.split())
        self.answers = ["".join(WORDS[said:])]
        for event in super().respond(request):
            if isinstance(event, TextPiece):
                threading.Event().wait(0.06)
            yield event


def main() -> None:
    store = Store.open(Path(sys.argv[1]))
    conversation = Conversation(store, None, ChatSettings())
    if len(sys.argv) > 2:
        conversation = Conversation.open(store, None, sys.argv[2])
    model = Counting(name="counting:1b")
    app = ChatApp(conversation, model=None, open_model=lambda _: model, models=ScriptedShelf(), cwd=Path())
    app.run()
    store.close()


if __name__ == "__main__":
    main()
