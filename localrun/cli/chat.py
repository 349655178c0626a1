"""`localrun chat`: on the full screen, or line by line.

Knows flags and terminals; the conversation is `chat.conversation`, the screen `tui`. Invariant: nothing heavy is
imported before it is known which of the two it will be.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localrun.errors import UsageError

if TYPE_CHECKING:
    from localrun.chat.conversation import ChatSettings, Conversation
    from localrun.params import EngineParams
    from localrun.responder import Responder
    from localrun.store import Store

OpenResponder = Callable[["str | None", "EngineParams"], "Responder"]


def chat(
    model: Annotated[str | None, typer.Argument(help="A model's name or file. Default: the one used last.")] = None,
    continue_last: Annotated[bool, typer.Option("--continue", "-c", help="Go on with the last chat.")] = False,
    session: Annotated[
        str | None, typer.Option("--session", help="Go on with this chat: ID, or ID:NUMBER below one of its messages.")
    ] = None,
    system: Annotated[str | None, typer.Option("--system", "-s", help="The system prompt.")] = None,
    temperature: Annotated[float | None, typer.Option(help="How daring: 0 is always the likeliest token.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Choose among the tokens that make up this probability.")] = None,
    seed: Annotated[int | None, typer.Option(help="Make answers repeatable.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", "-n", help="The longest answer.")] = None,
    grammar: Annotated[str | None, typer.Option(help="Answers follow this grammar or JSON Schema.")] = None,
    think: Annotated[bool | None, typer.Option("--think/--no-think", help="Let the model reason first.")] = None,
    on_full: Annotated[
        str | None, typer.Option(help="When the context is full: ask, compact (a summary), or shift.")
    ] = None,
    ctx: Annotated[int | None, typer.Option(help="Size of the context in tokens.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads; default: as many as are free.")] = None,
    gpu_layers: Annotated[int | None, typer.Option(help="Layers on the GPU; default: as many as fit.")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Line by line, without a full screen.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Line by line: what each answer cost, on stderr.")] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Do not use the disk cache of prompts.")] = False,
) -> None:
    """Chat with a model. Everything is saved as it happens; `localrun sessions` finds it again."""
    from localrun.chat.conversation.files import read_constraint
    from localrun.params import EngineParams
    from localrun.store import Store

    if continue_last and session is not None:
        raise UsageError("--continue and --session were both given", hint="--session last is the same as --continue")
    engine = EngineParams(n_ctx=ctx, threads=threads, gpu_layers=gpu_layers, cache=not no_cache)
    changes: dict[str, object] = {
        "system": system,
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
        "max_tokens": max_tokens,
        "constraint": None if grammar is None else read_constraint(grammar),
        "think": think,
        "on_full": on_full,
    }
    store = Store.open()
    try:
        conversation = _conversation(store, "last" if continue_last else session, changes)
        name = model or last_model(conversation)
        if plain or not full_screen_is_possible():
            talk_plainly(conversation, name, engine, open_local, stats=stats)
        else:
            talk_on_screen(conversation, name, engine, open_local)
    finally:
        store.close()


def _conversation(store: Store, session: str | None, changes: dict[str, object]) -> Conversation:
    """The conversation to go on with or to begin, with the settings that flags change."""
    from localrun.chat.conversation import ChatSettings, Conversation

    if session is None:
        return Conversation(store, None, changed(ChatSettings(), changes))
    conversation = Conversation.open(store, None, session)
    settings = changed(conversation.settings, changes)
    if settings != conversation.settings:
        conversation.change_settings(settings)
    return conversation


def changed(settings: ChatSettings, changes: dict[str, object]) -> ChatSettings:
    """The settings with every change that is not None. Raises `UsageError` for values out of range."""
    given = {name: value for name, value in changes.items() if value is not None}
    sampling = replace(settings.params.sampling, **_taken(given, "temperature", "top_p", "seed"))
    params = replace(settings.params, sampling=sampling, **_taken(given, "max_tokens", "constraint", "think"))
    return replace(settings, params=params, **_taken(given, "system", "on_full"))


def _taken(given: dict[str, object], *names: str) -> dict[str, Any]:  # each name belongs to one dataclass
    return {name: given[name] for name in names if name in given}


def last_model(conversation: Conversation) -> str | None:
    """The model that answered last in this conversation."""
    for node in reversed(conversation.path):
        model = node.facts.get("model")
        if isinstance(model, dict) and isinstance(model.get("name"), str):
            return str(model["name"])
    return None


def full_screen_is_possible() -> bool:
    """Whether both ends are a terminal that can draw."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "", None)


def open_local(model: str | None, engine: EngineParams) -> Responder:
    """The model on this machine's own engine."""
    from localrun.local import open_responder

    return open_responder(model, engine)


def talk_plainly(
    conversation: Conversation,
    model: str | None,
    engine: EngineParams,
    open_responder: OpenResponder,
    *,
    stats: bool = False,
) -> None:
    """Chat line by line on the process's own streams."""
    from localrun.cli.plain_chat import PlainChat, Streams

    # The process's handler ends it at the second Ctrl-C of its life; in a chat, Ctrl-C stops an answer.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    conversation.responder = open_responder(model, engine)
    plain = PlainChat(
        conversation,
        Streams(sys.stdin, sys.stdout, sys.stderr),
        open_model=lambda name: open_responder(name, engine),
        stats=stats,
    )
    try:
        plain.run()
    finally:
        if plain.conversation.responder is not None:
            plain.conversation.responder.close()
        signal.signal(signal.SIGINT, before)


def talk_on_screen(
    conversation: Conversation, model: str | None, engine: EngineParams, open_responder: OpenResponder
) -> None:
    """Chat on the full screen; the model is loaded while it is already there."""
    from localrun.tui.app import ChatApp
    from localrun.tui.models import LocalModels

    app = ChatApp(
        conversation,
        model=model,
        open_model=lambda name: open_responder(name, engine),
        models=LocalModels(),
        cwd=Path(),
    )
    app.run()
    if app.session_id is not None:
        sys.stderr.write(f"Saved. Go on with: localrun chat --session {app.session_id}\n")
