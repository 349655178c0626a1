"""The list of completions above the prompt, and what stands in it.

Knows commands and a folder; knows no prompt. Invariant: reading a folder never takes long (it is cut off), and never
fails loudly: a folder that cannot be read has no completions.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from localrun.chat.conversation.commands import COMMANDS
from localrun.chat.conversation.files import path_of
from localrun.chat.conversation.meter import visible

MAX_SHOWN = 8
_MAX_ENTRIES = 5_000
"""Entries of a folder that are looked at: enough for any source tree, not for a mail spool."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What is put in place of the prefix, and what is shown."""

    replacement: str
    label: str
    detail: str = ""


class Completions(OptionList, can_focus=False):
    """An open list; the prompt sends it the keys."""

    HELP = "Completions: ↑↓ choose, Tab or Enter takes, Esc closes."

    DEFAULT_CSS = """
    Completions {
        display: none;
        height: auto;
        max-height: 10;
        max-width: 90;
        border: round $faint;
        background: $surface;
        padding: 0 1;
        margin: 0 1;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    Completions.-open { display: block; }
    Completions > .option-list--option-highlighted { background: $primary 25%; color: $foreground; text-style: none; }
    """

    def __init__(self) -> None:
        super().__init__(id="completions", markup=False)
        self.offered: tuple[Completion, ...] = ()
        self.prefix = ""

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def offer(self, prefix: str, completions: Sequence[Completion]) -> None:
        """Open with these; close if there are none."""
        self.prefix = prefix
        self.offered = tuple(completions)
        self.set_class(bool(completions), "-open")
        width = max((len(completion.label) for completion in completions), default=0)
        self.clear_options()
        self.add_options(
            Option(Content.assemble(f"{visible(completion.label):{width}}", ("  " + completion.detail, "$muted")))
            for completion in completions
        )
        self.highlighted = 0 if completions else None

    def close(self) -> None:
        self.offer("", ())

    def move(self, step: int) -> None:
        """Highlight the next or the previous one, round and round."""
        if self.offered:
            self.highlighted = ((self.highlighted or 0) + step) % len(self.offered)

    @property
    def chosen(self) -> Completion | None:
        return self.offered[self.highlighted] if self.offered and self.highlighted is not None else None


def command_completions(prefix: str) -> list[Completion]:
    """Commands that begin with the prefix, then those that hold it."""
    matching = [command for command in COMMANDS if command.name.startswith(prefix)]
    matching += [command for command in COMMANDS if prefix in command.name and command not in matching]
    return [
        Completion(f"{command.name} " if command.argument else command.name, command.usage, command.explanation)
        for command in matching[:MAX_SHOWN]
    ]


def file_completions(prefix: str, folder: Path) -> list[Completion]:
    """Files and folders whose path continues the prefix; hidden ones only when a dot was typed."""
    head, _, tail = prefix.rpartition("/")
    written = f"{head}/" if "/" in prefix else ""
    place = path_of(written, folder)
    found: list[tuple[bool, bool, str]] = []
    try:
        with os.scandir(place) as entries:
            for entry in islice(entries, _MAX_ENTRIES):
                name = entry.name
                if name.startswith(".") and not tail.startswith("."):
                    continue
                if tail.lower() in name.lower() and name.startswith("." if tail.startswith(".") else ""):
                    begins = name.lower().startswith(tail.lower())
                    found.append((not begins, not entry.is_dir(), name))
    except OSError:
        return []
    return [
        Completion(f"{written}{name}{'' if is_file else '/'}", f"{name}{'' if is_file else '/'}")
        for _, is_file, name in sorted(found)[:MAX_SHOWN]
    ]
