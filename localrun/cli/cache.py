"""`localrun cache`: what the prefix cache on disk holds, and how to empty it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localrun.catalog.storage import human_size
from localrun.cli.output import to_json, write_stderr, write_stdout
from localrun.errors import OutputWriteError

if TYPE_CHECKING:
    from localrun.engine.kv_folder import StoredModel

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def ls(json_output: JsonOption = False) -> None:
    """List what is cached, model by model, the one used last first."""
    import time

    from localrun.paths import default_paths

    models = _stored(default_paths().kv_blocks)
    if json_output:
        rows = [
            {"identity": m.identity, "blocks": m.n_blocks, "bytes": m.n_bytes, "last_used": round(m.last_used)}
            for m in models
        ]
        write_stdout(to_json(rows))
        return
    if models and sys.stdout.isatty():
        write_stdout(f"{'SIZE':>13}  {'BLOCKS':>13}  {'LAST USED':16}  MODEL · WHAT ITS CACHE DEPENDS ON\n")
    for model in models:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(model.last_used))
        write_stdout(
            f"{human_size(model.n_bytes):>13}  {model.n_blocks:6,} blocks  {used}  {_in_words(model.identity)}\n"
        )
    if not models:
        write_stderr("the cache is empty\n")


def stats(json_output: JsonOption = False) -> None:
    """Show how large the cache is, and how large it may become."""
    from localrun.local.reuse import cache_budget
    from localrun.paths import default_paths

    root = default_paths().kv_blocks
    models = _stored(root)
    n_bytes = sum(model.n_bytes for model in models)
    n_blocks = sum(model.n_blocks for model in models)
    budget = cache_budget(root)
    if json_output:
        data = {"folder": str(root), "models": len(models), "blocks": n_blocks, "bytes": n_bytes, "budget": budget}
        write_stdout(to_json(data))
        return
    write_stdout(
        f"folder   {root}\nmodels   {len(models):,}\nblocks   {n_blocks:,}\n"
        f"size     {human_size(n_bytes)} of at most {human_size(budget)}\n"
    )


def clear() -> None:
    """Delete everything that is cached. What it held is computed again when it is needed."""
    from localrun.engine.kv_folder import clear as clear_store
    from localrun.engine.kv_folder import folder_size
    from localrun.paths import default_paths

    root = default_paths().kv_blocks
    with _unreadable(root):
        freed = clear_store(root)
        left = folder_size(root)
    write_stderr(f"{human_size(freed)} freed\n")
    if left:
        message = f"{human_size(left)} of blocks in {root} could not be deleted"
        raise OutputWriteError(message, hint="they belong to somebody else")


def _in_words(identity: str) -> str:
    """What a cache depends on, as a person reads it: `flash attention off`."""
    return re.sub(r"\b(True|False)\b", lambda found: "on" if found[0] == "True" else "off", identity)


def _stored(root: Path) -> list[StoredModel]:
    from localrun.engine.kv_folder import stored_models

    with _unreadable(root):
        return stored_models(root)


@contextmanager
def _unreadable(root: Path) -> Iterator[None]:
    """A folder that may not be looked into, as an error that names it."""
    try:
        yield
    except OSError as error:
        from localrun.errors import StoreError
        from localrun.paths import nearest_existing

        place = nearest_existing(Path(error.filename or root))
        reason = error.strerror or error
        raise StoreError(f"the prefix cache in {root} cannot be read: {reason}", hint=f"chmod u+rwx {place}") from error


commands = {"ls": ls, "stats": stats, "clear": clear}
