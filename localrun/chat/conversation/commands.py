"""What a line that begins with a slash means, for every screen that takes one.

Knows the names, arguments and explanations of the commands; carries none of them out. Invariant: a message that begins
with one slash is never sent to a model by mistake; with two slashes it is a message.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from localrun.errors import UsageError


@dataclass(frozen=True, slots=True)
class CommandHelp:
    """How a command is written and what it does."""

    name: str
    argument: str
    explanation: str

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a user gave."""

    name: str
    argument: str


COMMANDS: tuple[CommandHelp, ...] = (
    CommandHelp("help", "", "Keys and commands"),
    CommandHelp("model", "[NAME]", "Answer with another model"),
    CommandHelp("system", "[TEXT]", "Show or set the system prompt; `-` removes it"),
    CommandHelp("grammar", "[NAME|FILE]", "Make answers follow a grammar or JSON Schema; `off` frees them"),
    CommandHelp("temp", "NUMBER", "Set the temperature; 0 is always the likeliest token"),
    CommandHelp("settings", "", "All settings of this chat"),
    CommandHelp("file", "PATH", "Attach a text file to the next message"),
    CommandHelp("regenerate", "", "Answer again, beside the last answer"),
    CommandHelp("continue", "", "Go on with an answer that was stopped"),
    CommandHelp("edit", "[TEXT]", "Change your last message: a new branch"),
    CommandHelp("branch", "", "Start a branch with the last question alone"),
    CommandHelp("tree", "", "Show the branches of this chat"),
    CommandHelp("compact", "", "Replace older messages by a summary that can be read"),
    CommandHelp("shift", "", "Leave the oldest messages out from here on"),
    CommandHelp("copy", "", "Copy the last answer"),
    CommandHelp("new", "", "Start a new chat"),
    CommandHelp("sessions", "", "List the chats"),
    CommandHelp("search", "[WORDS]", "Search in all chats"),
    CommandHelp("rename", "NAME", "Give this chat a name"),
    CommandHelp("pin", "", "Keep this chat at the top of the list, or let it go"),
    CommandHelp("trash", "", "Move this chat to the trash"),
    CommandHelp("export", "[FILE]", "Save this chat: .md the path you see, .json all branches"),
    CommandHelp("import", "FILE", "Read a chat from a file"),
    CommandHelp("theme", "[NAME]", "Change the colours"),
    CommandHelp("quit", "", "Leave; everything is saved"),
)

_ALIASES = {"exit": "quit", "bye": "quit", "regen": "regenerate", "retry": "regenerate", "temperature": "temp"}
_ALIASES |= {"?": "help", "clear": "new", "attach": "file", "save": "export", "load": "import", "rm": "trash"}
_SHAPE = re.compile(r"/(\S*)(?:\s+(.*))?", re.DOTALL)


def parse(line: str) -> Command | None:
    """The command in a line; None for a message. Raises `UsageError` for a command that does not exist."""
    stripped = line.strip()
    found = _SHAPE.fullmatch(stripped)
    if found is None or stripped.startswith("//"):
        return None
    name = found.group(1).lower()
    name = _ALIASES.get(name, name)
    names = [command.name for command in COMMANDS]
    if name not in names:
        close = difflib.get_close_matches(name, [*names, *_ALIASES], n=1)
        is_text = not name.isalpha()  # a path or a sum: no slip of the fingers
        hint = "/help lists the commands; begin with // to send it as text"
        if close and not is_text:
            hint = f"did you mean /{close[0]}?"
        raise UsageError(f"there is no command /{name}", hint=hint)
    return Command(name, (found.group(2) or "").strip())


def as_message(line: str) -> str:
    """The text of a message: a doubled slash at its beginning stands for one."""
    return line[1:] if line.startswith("//") else line


def as_typed(text: str) -> str:
    """What must be typed to send this text: the other way round from `as_message`."""
    return f"/{text}" if text.startswith("/") else text
