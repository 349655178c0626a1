"""Which commands there are.

Knows their names, one line of help each, and where they live; imports only the one that runs, so that `--help` and
every command start fast. Invariant: every command in the table exists and works.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer


@dataclass(frozen=True, slots=True)
class Command:
    """A command: `localrun.cli.MODULE:ATTRIBUTE`, a function, or for a group a dictionary of functions by name."""

    module: str
    attribute: str
    help: str
    group: bool = False


COMMANDS: dict[str, Command] = {
    "generate": Command("generate", "generate", "Answer a prompt, or a batch of them, to stdout."),
    "chat": Command("chat", "chat", "Chat with a model, on the full screen or line by line."),
    "pull": Command("models", "pull", "Fetch models."),
    "list": Command("models", "list_", "List the models on this machine, or those that could be fetched."),
    "show": Command("models", "show", "Show what a model is."),
    "rm": Command("models", "rm", "Delete models that localrun fetched."),
    "cache": Command("cache", "commands", "The prefix cache on disk: list it, measure it, empty it.", group=True),
    "quantize": Command("quantize", "quantize", "Make a model smaller, and measure what that costs."),
    "plan": Command("plan", "plan", "Show what fits this machine, before downloading."),
    "serve": Command("serve", "serve", "Serve models over HTTP as OpenAI's API does."),
    "ps": Command("ps", "ps", "Show the running servers and the models they have in memory."),
    "bench": Command("bench", "bench", "Measure how fast a model is here, and find its best settings."),
    "doctor": Command("doctor", "doctor", "Check what works here, and how to fix what does not."),
    "sessions": Command("sessions", "commands", "Saved chats: list, search, show, export, delete.", group=True),
    "grammar": Command("grammar", "commands", "Ready grammars and schemas: list, show, check.", group=True),
    "tokenize": Command("tokenize", "tokenize", "Show the token ids, pieces and count of a text."),
}

ALIASES = {"ls": "list"}
"""Other words for a command, as other tools have them."""


def build(wanted: str | None, *, everything: bool = False) -> typer.Typer:
    """The application with the command `wanted` ready to run, and all others only listed.

    With `everything`, all commands are real: for the generated reference and for shell completion.
    """
    app = typer.Typer(
        name="localrun",
        help="Run, shrink and script language models on your own machine.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, command in COMMANDS.items():
        real = everything or name == wanted
        if command.group:
            app.add_typer(_group(name, command, real), name=name)
        else:
            function = load(command) if real else _placeholder
            app.command(name, help=None if real else command.help, short_help=command.help)(function)
    return app


def _root(
    debug: bool = typer.Option(
        False, "--debug", help="Show tracebacks and the engine's log. Works after a command too."
    ),
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    """Both options are handled before the application is built; they stand here for the help text."""


def _group(name: str, command: Command, real: bool) -> typer.Typer:
    group = typer.Typer(name=name, help=command.help, no_args_is_help=True, rich_markup_mode=None)
    functions: dict[str, Callable[..., Any]] = load(command) if real else {"…": _placeholder}
    for subcommand, function in functions.items():
        group.command(subcommand)(function)
    return group


def load(command: Command) -> Any:
    """The function of a command, or the functions of a group by name."""
    return getattr(importlib.import_module(f"localrun.cli.{command.module}"), command.attribute)


def _placeholder() -> None:
    """Listed, never run."""
