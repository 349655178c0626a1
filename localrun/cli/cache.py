"""`localrun cache`: what the prefix cache on disk holds, and how to empty it."""

from __future__ import annotations

from typing import Annotated

import typer

from localrun.cli.output import to_json, write_stderr, write_stdout

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def ls(json_output: JsonOption = False) -> None:
    """List what is cached, model by model, the one used last first."""
    import time

    from localrun.engine.kv_folder import stored_models
    from localrun.paths import default_paths

    models = stored_models(default_paths().kv_blocks)
    if json_output:
        rows = [
            {"identity": m.identity, "blocks": m.n_blocks, "bytes": m.n_bytes, "last_used": round(m.last_used)}
            for m in models
        ]
        write_stdout(to_json(rows))
        return
    for model in models:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(model.last_used))
        write_stdout(f"{model.n_bytes / 1e6:10,.1f} MB  {model.n_blocks:6,} blocks  {used}  {model.identity}\n")
    if not models:
        write_stderr("the cache is empty\n")


def stats(json_output: JsonOption = False) -> None:
    """Show how large the cache is, and how large it may become."""
    from localrun.engine.kv_folder import stored_models
    from localrun.local.reuse import cache_budget
    from localrun.paths import default_paths

    root = default_paths().kv_blocks
    models = stored_models(root)
    n_bytes = sum(model.n_bytes for model in models)
    n_blocks = sum(model.n_blocks for model in models)
    budget = cache_budget(root)
    if json_output:
        data = {"folder": str(root), "models": len(models), "blocks": n_blocks, "bytes": n_bytes, "budget": budget}
        write_stdout(to_json(data))
        return
    write_stdout(
        f"folder   {root}\nmodels   {len(models):,}\nblocks   {n_blocks:,}\n"
        f"size     {n_bytes / 1e6:,.1f} MB of at most {budget / 1e6:,.0f} MB\n"
    )


def clear() -> None:
    """Delete everything that is cached. What it held is computed again when it is needed."""
    from localrun.engine.kv_folder import clear as clear_store
    from localrun.paths import default_paths

    freed = clear_store(default_paths().kv_blocks)
    write_stderr(f"{freed / 1e6:,.1f} MB freed\n")


commands = {"ls": ls, "stats": stats, "clear": clear}
