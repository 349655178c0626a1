"""Small texts that several widgets show: sizes, times, attachments."""

from __future__ import annotations

from datetime import datetime, timedelta

from localrun.catalog.storage import human_size
from localrun.store import Attachment


def size_words(n_bytes: int | None) -> str:
    """`98 MB`, as every command writes it; nothing where it is not known."""
    return "" if n_bytes is None else human_size(n_bytes)


def attachment_words(attachment: Attachment) -> str:
    """The name of a file with its size."""
    return f"+ {attachment.name} · {size_words(len(attachment.text.encode()))}"


def day_words(timestamp: float, now: float) -> str:
    """The heading under which something of that time is listed."""
    day, today = datetime.fromtimestamp(timestamp).date(), datetime.fromtimestamp(now).date()
    if day >= today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    if day > today - timedelta(days=7):
        return "This week"
    if day > today - timedelta(days=31):
        return "This month"
    return "Earlier"
