"""`localrun serve`: an OpenAI-compatible server on the local engine.

Knows flags; knows no HTTP. Invariant: what is wrong with the flags, the files or the machine is said before the server
listens.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localrun.cli import options as o
from localrun.cli.fetch_progress import fetch_progress
from localrun.cli.output import write_stderr
from localrun.cli.settings import load_config
from localrun.errors import UsageError

if TYPE_CHECKING:
    from localrun.config import Config
    from localrun.serve.app import ServeOptions
    from localrun.serve.guard import Rules
    from localrun.serve.servable import Servable
    from localrun.serve.server import Running

_KEY_VARIABLE = "LOCALRUN_API_KEY"
_DEFAULT_PARALLEL = 4


@o.takes(o.SPREAD)
def serve(
    models: Annotated[
        list[str] | None, typer.Option("-m", "--model", help="A model to serve (repeatable); the first is loaded now.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on. Others than loopback demand a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", help="Port; 0 takes any that is free.")] = 8080,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", help=f"The variable with the API key. [default: {_KEY_VARIABLE}]")
    ] = None,
    parallel: Annotated[int | None, typer.Option("--parallel", help="Answers at once. [default: 4]")] = None,
    queue: Annotated[int, typer.Option("--queue", help="Answers that may wait; beyond that: 429.", min=0)] = 64,
    max_models: Annotated[
        int | None, typer.Option("--max-models", help="Models in memory at once. [default: as many as fit]", min=1)
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option("--allow-origin", help="A web page's origin that may call (repeatable), or *.")
    ] = None,
    ctx: o.Ctx = None,
    threads: o.Threads = None,
    kv_type: o.KvType = None,
    flash_attention: o.FlashAttention = None,
    log_prompts: Annotated[
        bool, typer.Option("--log-prompts", help="Log whole requests. Prompts are private.")
    ] = False,
    offline: o.Offline = None,
    quiet: o.Quiet = None,
    **settings: o.Setting,
) -> None:
    """Serve models over HTTP as OpenAI's API does."""
    config = load_config(locals() | settings)
    _require_extra()
    from localrun.hardware.memory import available_memory
    from localrun.serve.app import ServeOptions
    from localrun.serve.server import Address, check_access
    from localrun.serve.server import serve as run

    options = ServeOptions(
        rules=_rules(host, api_key_env, allow_origin or []),
        parallel=config.get("parallel") or _DEFAULT_PARALLEL,
        queue=queue,
        max_loaded=max_models,
        log=None if config.get("quiet") else _log,
        log_prompts=log_prompts,
    )
    address = Address(host, port)
    check_access(options, address)
    servables = _servables(config, models, options)
    run(servables, options, address, available=available_memory, on_ready=lambda running: _say_ready(running, options))


def _require_extra() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("starlette", "uvicorn", "prometheus_client") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the server needs {', '.join(missing)}",
            hint="where localrun lies: pip install '.[serve]'",
        )


def _rules(host: str, variable: str | None, origins: list[str]) -> Rules:
    from localrun.serve.guard import LOOPBACK, Rules

    key = os.environ.get(variable or _KEY_VARIABLE) or None
    if variable is not None and key is None:
        raise UsageError(f"--api-key-env names {variable}, which is not set")
    return Rules(key=key, hosts=LOOPBACK | {host.strip("[]").lower()}, origins=frozenset(origins))


def _servables(config: Config, names: list[str] | None, options: ServeOptions) -> list[Servable]:
    from localrun.catalog import load_catalogue, resolve
    from localrun.serve.local_models import servable

    progress = fetch_progress(quiet=bool(config.get("quiet")))
    found: dict[str, Servable] = {}
    for name in names or [config.get("model") or load_catalogue().default]:
        params = replace(config.engine(name), n_parallel=options.parallel)
        file = resolve(name, offline=bool(config.get("offline")), progress=progress)
        entry = servable(file, params)
        if entry.name in found:
            raise UsageError(
                f"two models are called {entry.name}", hint=f"rename one of the files; this is {Path(file.path)}"
            )
        found[entry.name] = entry
    return list(found.values())


def _say_ready(running: Running, options: ServeOptions) -> None:
    names = ", ".join(running.service.pool.names)
    write_stderr(f"{names} on {running.url}/v1 ({options.parallel} answers at once; Ctrl-C stops)\n")


def _log(line: str) -> None:
    try:
        sys.stderr.write(line + "\n")
    except OSError:
        return  # stderr is closed or full: serving goes on without a log
