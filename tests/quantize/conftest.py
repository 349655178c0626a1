"""What holds for every test of the quantization library."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncing makes files survive a power cut, which no test can cause; waiting for it takes most of the time."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
