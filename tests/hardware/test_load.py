"""The load of other programs, from counters of busy and own seconds."""

from __future__ import annotations

import pytest

from localrun.hardware.load import LoadProbe


class Counters:
    """A machine's counters, moved by hand."""

    def __init__(self) -> None:
        self.now, self.busy, self.own = 0.0, 100.0, 5.0

    def probe(self) -> LoadProbe:
        return LoadProbe(busy_seconds=lambda: self.busy, own_seconds=lambda: self.own, clock=lambda: self.now)

    def pass_time(self, seconds: float, *, own: float, others: float) -> None:
        self.now += seconds
        self.own += own * seconds
        self.busy += (own + others) * seconds


def test_what_others_use_is_what_is_busy_and_not_ours() -> None:
    counters = Counters()
    probe = counters.probe()
    counters.pass_time(0.1, own=1.5, others=0.5)
    assert probe.others() == pytest.approx(0.5)
    counters.pass_time(0.2, own=2.0, others=0.0)
    assert probe.others() == pytest.approx(0.0)


def test_a_look_too_soon_has_nothing_to_say_and_forgets_nothing() -> None:
    counters = Counters()
    probe = counters.probe()
    counters.pass_time(0.03, own=0, others=1)
    assert probe.others() is None
    counters.pass_time(0.07, own=0, others=1)
    assert probe.others() == pytest.approx(1.0)


def test_rounding_never_gives_less_than_nothing() -> None:
    counters = Counters()
    probe = counters.probe()
    counters.pass_time(0.1, own=1.2, others=-0.2)
    assert probe.others() == 0.0


def test_the_real_counters_answer_on_this_machine() -> None:
    probe = LoadProbe()
    assert probe.others() is None
