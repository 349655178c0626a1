"""The chat line by line, when its answers cannot be written."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from localrun.chat.conversation import ChatSettings, Conversation
from localrun.cli.plain_chat import PlainChat, Streams
from localrun.errors import OutputWriteError
from localrun.store import Store
from tests.tui.scripted import ScriptedResponder


class Full(io.StringIO):
    """A stream on a full disk."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_answer_that_cannot_be_written_is_one_error_and_leaves_nothing_open(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "sessions.db")
    conversation = Conversation(store, ScriptedResponder("Blue as ever."), ChatSettings())
    plain = PlainChat(conversation, Streams(io.StringIO("sky?\n"), Full(), io.StringIO()), open_model=ScriptedResponder)
    with pytest.raises(OutputWriteError, match="could not be written: No space left") as caught:
        plain.run()
    assert caught.tb is not None  # it holds every frame: what was open would still be
    assert conversation.session is not None
    answer = store.tree(conversation.session.id).numbered(2)
    assert answer is not None
    assert answer.finish == "interrupted"
    store.close()
