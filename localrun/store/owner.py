"""Who is writing: enough to tell a program that is gone from one that is busy.

Knows processes; knows no session. Invariant: a writer is called gone only if that is certain, because its open segment
is then closed by somebody else.
"""

from __future__ import annotations

import os
import socket

_WORDS = 3


def _started_at(process_id: int) -> str:
    import psutil  # type: ignore[import-untyped,unused-ignore]  # it ships no annotations

    return f"{psutil.Process(process_id).create_time():.2f}"


def this_process() -> str:
    """A name for this process that no other process ever has: host, process number, start time."""
    return f"{socket.gethostname()}/{os.getpid()}/{_started_at(os.getpid())}"


def is_gone(writer: str) -> bool:
    """Whether the process of that name has certainly ended. A process of another host is never called gone."""
    import psutil

    words = writer.rsplit("/", _WORDS - 1)
    if len(words) != _WORDS or words[0] != socket.gethostname():
        return False
    try:
        return _started_at(int(words[1])) != words[2]
    except psutil.NoSuchProcess:
        return True
    except (psutil.Error, ValueError):
        return False
