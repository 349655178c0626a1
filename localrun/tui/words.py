"""Small texts that several widgets show: sizes, times, attachments."""

from __future__ import annotations

from datetime import datetime, timedelta

from localrun.store import Attachment

_UNITS = ("B", "KB", "MB", "GB", "TB")


def size_words(n_bytes: int | None) -> str:
    """1,500,000 → "1.5 MB", as disks and downloads count."""
    if n_bytes is None:
        return ""
    value = float(n_bytes)
    for unit in _UNITS[:-1]:
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} {_UNITS[-1]}"


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
