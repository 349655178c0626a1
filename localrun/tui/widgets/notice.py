"""Something the program has to say in the conversation: an error with its hint."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from localrun.chat.conversation.meter import visible
from localrun.errors import LocalrunError


class Notice(Static):
    """Stands below the last message until the next one is sent; it is no message and is not saved."""

    HELP = "What went wrong, and what can be done. Your message is saved: **Ctrl+R** tries again."

    DEFAULT_CSS = """
    Notice { max-width: 108; height: auto; border-left: outer $error; padding: 0 2 0 1; margin: 0 0 1 0; }
    """

    def __init__(self, error: LocalrunError) -> None:
        super().__init__(_words(error), markup=False)
        self.error = error


def _words(error: LocalrunError) -> Content:
    hint = Content.styled(f"\n{visible(error.hint)}", "$muted") if error.hint else Content("")
    return Content.styled(visible(error.message), "$error") + hint
