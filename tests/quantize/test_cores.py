"""Threads go where cores are free."""

from __future__ import annotations

import pytest

from quantize import cores


@pytest.mark.parametrize(
    ("idle", "total", "expected"),
    [(80, 80, 8), (60, 80, 6), (0, 80, 1), (0, 0, 8)],
    ids=["idle machine", "two cores busy", "all busy", "no time passed"],
)
def test_the_engine_takes_the_cores_that_are_idle(
    idle: int, total: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([(1000, 5000), (1000 + idle, 5000 + total)])
    monkeypatch.setattr(cores, "_idle_and_total", lambda: next(looks))
    monkeypatch.setattr(cores, "available_cores", lambda: 8)
    monkeypatch.setattr(cores, "_LOOK_SECONDS", 0)
    assert cores.free_cores() == expected


def test_where_the_system_does_not_tell_every_core_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_idle_and_total", lambda: None)
    assert cores.free_cores() == cores.available_cores() >= 1
