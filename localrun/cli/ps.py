"""`localrun ps`: which servers run on this machine, and what they have loaded.

Knows how to print; asks the servers themselves. Invariant: a server that has ended is not shown.
"""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

from localrun.cli.output import write_stderr, write_stdout

_HEAD = ("PID", "URL", "MODEL", "STATE", "SIZE", "CONTEXT", "RUNNING", "LAST USED")


def ps(json_output: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Show the running servers of localrun and the models they have in memory."""
    from localrun.remote.neighbours import running_servers
    from localrun.remote.status import server_status

    servers = [(server, server_status(server)) for server in running_servers()]
    answered = [{"url": server.url, **status} for server, status in servers if status is not None]
    if json_output:
        write_stdout(json.dumps(answered, ensure_ascii=False, indent=2) + "\n")
        return
    if not answered:
        write_stderr("no server of localrun runs; start one with: localrun serve\n")
        return
    rows = [row for status in answered for row in _rows(status)]
    widths = [max(len(row[i]) for row in (_HEAD, *rows)) for i in range(len(_HEAD))]
    for row in (_HEAD, *rows):
        write_stdout("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")


def _rows(status: dict[str, Any]) -> list[tuple[str, ...]]:
    from localrun.catalog.storage import human_size

    head = (str(status["pid"]), str(status["url"]))
    rows: list[tuple[str, ...]] = [
        (
            *head,
            str(model["name"]),
            str(model.get("state", "loaded")),
            human_size(model["bytes"]),
            f"{model['context']:,}",
            str(model["in_flight"]),
            _ago(time.time() - model["last_used"]) if model["last_used"] else "",
        )
        for model in status["models"]
    ]
    return rows or [(*head, "(none loaded)", "", "", "", "", "")]


def _ago(seconds: float) -> str:
    if seconds < 2:
        return "now"
    for name, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {name} ago"
    return f"{int(seconds)} s ago"
