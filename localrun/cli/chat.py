"""`localrun chat`: on the full screen, or line by line.

Knows flags and terminals; the conversation is `chat.conversation`, the screen `tui`. Invariant: nothing heavy is
imported before it is known which of the two it will be.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localrun.cli import options as o
from localrun.cli.settings import load_config, one_model
from localrun.config import Config, variable
from localrun.errors import UsageError
from localrun.params import GenerationParams, SamplingParams
from localrun.paths import default_paths

if TYPE_CHECKING:
    from localrun.chat.conversation import ChatSettings, Conversation
    from localrun.responder import Responder
    from localrun.store import Store
    from localrun.tui.ports import ModelShelf

OpenResponder = Callable[["str | None"], "Responder"]

_FIELDS = {
    "timeout": ("timeout_s",),
    "sampler_order": ("order",),
    "xtc": ("xtc_probability", "xtc_threshold"),
    "dry": ("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n"),
    "mirostat": ("mirostat", "mirostat_tau", "mirostat_eta"),
}
"""Flags that set fields of other names; all others are called like their field."""


@o.takes(o.SAMPLING, o.SPREAD)
def chat(
    model: Annotated[
        str | None, typer.Argument(help="A name, a path, hf:…, pypi:… or a URL.", show_default=False)
    ] = None,
    model_too: o.ModelToo = None,
    continue_last: Annotated[bool, typer.Option("-c", "--continue", help="Go on with the last chat.")] = False,
    session: Annotated[
        str | None,
        typer.Option("--session", help="Go on with a chat, or below one of its messages.", metavar="ID[:NUMBER]"),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Line by line, without a full screen.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Line by line: what each answer cost, on stderr.")] = False,
    on_full: Annotated[
        str | None,
        typer.Option("--on-full", help="When the context is full: ask, compact or shift.", metavar="POLICY"),
    ] = None,
    grammar: Annotated[
        str | None, typer.Option("--grammar", help="Answers follow this grammar or JSON Schema.", metavar="FILE|NAME")
    ] = None,
    system: o.System = None,
    max_tokens: o.MaxTokens = None,
    stop: o.Stop = None,
    ctx: o.Ctx = None,
    timeout: o.Timeout = None,
    think: o.Think = None,
    think_budget: o.ThinkBudget = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="A remote engine: a URL, or a name of the configuration.", metavar="URL|NAME"),
    ] = None,
    threads: o.Threads = None,
    kv_type: o.KvType = None,
    flash_attention: o.FlashAttention = None,
    cache: Annotated[bool | None, typer.Option("--cache/--no-cache", help="Use the disk cache of prompts.")] = None,
    offline: o.Offline = None,
    **settings: o.Setting,
) -> None:
    """Chat with a model. Everything is saved as it happens; `localrun sessions` finds it again."""
    model = one_model(model, model_too)
    flags = locals() | settings
    if continue_last and session is not None:
        raise UsageError("--continue and --session were both given", hint="--session last is the same as --continue")
    config = load_config(flags)
    config.engine(model or config.get("model"))  # what makes no sense is said before a screen is there
    from localrun.store import Store

    store = Store.open()
    try:
        conversation = _conversation(store, "last" if continue_last else session, config, flags)
        name = model or last_model(conversation) or config.get("model")
        if plain or not full_screen_is_possible():
            talk_plainly(
                conversation, name, opener(config, shows_progress=True), stats=stats, quiet=bool(config.get("quiet"))
            )
        else:
            talk_on_screen(conversation, name, config)
    finally:
        store.close()


def _conversation(store: Store, session: str | None, config: Config, flags: Mapping[str, Any]) -> Conversation:
    """The conversation to go on with or to begin, with the settings that flags change."""
    from localrun.chat.conversation import ChatSettings, Conversation
    from localrun.chat.conversation.files import read_constraint

    constraint = None if flags["grammar"] is None else read_constraint(flags["grammar"])
    if session is None:
        params = replace(config.generation(config.get("model")), constraint=constraint)
        system = config.get("system", config.get("model")) or ""
        return Conversation(store, None, ChatSettings(system, params, flags["on_full"] or "ask"))
    conversation = Conversation.open(store, None, session)
    settings = changed(conversation.settings, flags)
    if constraint is not None:
        settings = replace(settings, params=replace(settings.params, constraint=constraint))
    if settings != conversation.settings:
        conversation.change_settings(settings)
    return conversation


def changed(settings: ChatSettings, flags: Mapping[str, Any]) -> ChatSettings:
    """The settings of a chat with the flags that were given. Raises `UsageError` for values out of range."""
    given = {name: value for name, value in flags.items() if value is not None and value != []}
    wanted = Config({name: value for name, value in given.items() if name not in ("model", "on_full", "grammar")})
    names = {field for name in given for field in _FIELDS.get(name, (name,))}
    params = settings.params
    sampling = replace(params.sampling, **_named(wanted.sampling(), SamplingParams, names))
    params = replace(params, **{**_named(wanted.generation(), GenerationParams, names), "sampling": sampling})
    return replace(
        settings,
        params=params,
        system=given.get("system", settings.system),
        on_full=given.get("on_full", settings.on_full),
    )


def _named(values: object, kind: type, names: set[str]) -> dict[str, Any]:
    return {field.name: getattr(values, field.name) for field in fields(kind) if field.name in names}


def last_model(conversation: Conversation) -> str | None:
    """The model that answered last in this conversation: its name, or the file where no name leads to it."""
    for node in reversed(conversation.path):
        model = node.facts.get("model")
        if isinstance(model, dict) and isinstance(model.get("name"), str):
            return _findable(str(model["name"]), model.get("path"))
    return None


def _findable(name: str, path: object) -> str:
    """A model that was given as a file is remembered under the file's name, which no catalogue knows."""
    from localrun.catalog import load_catalogue
    from localrun.catalog.references import NameReference, parse_reference

    is_name = isinstance(parse_reference(name), NameReference) and load_catalogue().find(name) is not None
    return name if is_name or not isinstance(path, str) or not Path(path).is_file() else path


def full_screen_is_possible() -> bool:
    """Whether both ends are a terminal that can draw."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "", None)


def opener(config: Config, *, shows_progress: bool = False) -> OpenResponder:
    """What opens a model by name, on this machine or on the remote engine of the configuration."""

    def open_responder(name: str | None) -> Responder:
        if remote := _remote(config):
            from localrun.remote import open_remote

            chosen = config.setting("model")
            asked = chosen.value if chosen.origin in ("flag", variable("model")) else None
            return open_remote(remote, name or asked, config)
        from localrun.cli.fetch_progress import fetch_progress
        from localrun.cli.opening import naming_origin
        from localrun.local import open_responder

        progress = fetch_progress(quiet=bool(config.get("quiet"))) if shows_progress else None
        with naming_origin(config, name):
            responder = open_responder(
                name, config.engine(name), offline=bool(config.get("offline")), progress=progress
            )
        try:
            responder.wait_loaded()
        except BaseException:
            responder.close()
            raise
        return responder

    return open_responder


def _remote(config: Config) -> str | None:
    remote: str | None = config.get("engine")
    if remote and remote != "local" and config.get("offline"):
        raise UsageError(f"--offline forbids the remote engine {remote}")
    return remote


def talk_plainly(
    conversation: Conversation,
    model: str | None,
    open_responder: OpenResponder,
    *,
    stats: bool = False,
    quiet: bool = False,
) -> None:
    """Chat line by line on the process's own streams."""
    from localrun.cli.plain_chat import PlainChat, Streams

    streams = Streams(sys.stdin, sys.stdout, sys.stderr)
    plain = PlainChat(conversation, streams, open_model=open_responder, stats=stats, quiet=quiet)
    # The process's handler ends it at the second Ctrl-C of its life; in a chat, Ctrl-C stops an answer.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        conversation.responder = open_responder(model)
        plain.run()
    finally:
        if plain.conversation.responder is not None:
            plain.conversation.responder.close()
        signal.signal(signal.SIGINT, before)


def talk_on_screen(conversation: Conversation, model: str | None, config: Config) -> None:
    """Chat on the full screen; the model is loaded while it is already there."""
    from localrun.cli.terminal import terminal_restorer
    from localrun.llama.fatal import before_the_end
    from localrun.tui.app import ChatApp
    from localrun.tui.collector import calm
    from localrun.tui.drafts import Drafts
    from localrun.tui.models import LocalModels, RemoteModels
    from localrun.turns import short_turns

    open_model = opener(config)
    shelf: ModelShelf = LocalModels(offline=bool(config.get("offline")))
    if _remote(config):
        shelf = RemoteModels()
        conversation.responder = open_model(model if config.setting("model").origin == "flag" else None)
    drafts = Drafts(default_paths().sessions_db.with_name("drafts.json"))
    begun = conversation.session
    draft = drafts.take(None if begun is None else begun.id)
    app = ChatApp(conversation, model=model, open_model=open_model, models=shelf, cwd=Path(), draft=draft)
    undo = before_the_end(terminal_restorer())
    try:
        with calm(), short_turns():
            app.run()
    finally:
        undo()
        is_kept = drafts.keep(app.session_id, app.unsent)
    if app.session_id is not None:
        unsent = ", with what you had not sent" if is_kept else ""
        sys.stderr.write(f"Saved. Go on with: localrun chat --session {app.session_id}{unsent}\n")
    elif is_kept:
        sys.stderr.write("What you had not sent is kept. Go on with: localrun chat\n")
