"""Which engine answers: a model on this machine, or a remote engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from localrun.cli.fetch_progress import fetch_progress
from localrun.cli.output import show_warning
from localrun.cli.signals import signals_later
from localrun.config import variable
from localrun.errors import ModelNotFoundError, UsageError

if TYPE_CHECKING:
    from localrun.config import Config
    from localrun.local import LocalResponder
    from localrun.params import EngineParams
    from localrun.remote.responder import RemoteResponder


def open_engine(
    config: Config, name: str | None, params: EngineParams, stack: ExitStack
) -> LocalResponder | RemoteResponder:
    """The responder that the settings ask for. `stack` closes it."""
    if engine := config.get("engine"):
        remote = _open_remote(config, engine)
        stack.callback(remote.close)
        return remote
    from localrun.local.opening import find_model, open_model

    progress = fetch_progress(quiet=bool(config.get("quiet")))
    with naming_origin(config, name):
        file = find_model(name, offline=bool(config.get("offline")), progress=progress)
    with signals_later():
        local = open_model(file, params)
        stack.callback(_close, local, quiet=bool(config.get("quiet")))
    return local


@contextmanager
def naming_origin(config: Config, name: str | None) -> Iterator[None]:
    """That no such model is known says where its name stands, if nobody has just typed it."""
    try:
        yield
    except ModelNotFoundError as error:
        setting = config.setting("model")
        if name is not None and setting.value == name and setting.origin not in ("flag", "default"):
            error.message += f" (its name stands in {setting.origin})"
            error.args = (error.message,)
        raise


def _close(local: LocalResponder, *, quiet: bool) -> None:
    local.close(free=False)  # the command's end is the process's
    for line in local.new_cache_problems():
        show_warning(line, quiet=quiet)


def _open_remote(config: Config, engine: str) -> RemoteResponder:
    from localrun.remote import open_remote

    if config.get("offline") and engine != "local":
        raise UsageError(f"--offline forbids the remote engine {engine}")
    model = config.setting("model")
    # A default model in the file is one of this machine; the engine's own is asked instead.
    return open_remote(engine, model.value if model.origin in ("flag", variable("model")) else None, config)
