"""The thread count on a simulated machine: decoding collapses with one thread more than there are free cores."""

from __future__ import annotations

import pytest

from localrun.engine.threads import ThreadGovernor


class Machine:
    """`n_cores` cores, of which others use `others`; a look at the load is worth something every 60 ms."""

    def __init__(self, n_cores: int) -> None:
        self.n_cores = n_cores
        self.others = 0.0
        self._now = 0.0
        self._looked = 0.0

    def probe(self) -> float | None:
        if self._now - self._looked < 0.06:
            return None
        self._looked = self._now
        return self.others

    def token_s(self, threads: int) -> float:
        collapse = 12.0 if threads > self.n_cores - self.others + 0.5 else 1.0
        return 0.016 / threads * collapse

    def run(self, governor: ThreadGovernor, n: int) -> list[int]:
        used = []
        for _ in range(n):
            governor.update()
            used.append(governor.threads)
            self._now += self.token_s(governor.threads)
            governor.observe(1, self.token_s(governor.threads))
        return used


@pytest.mark.parametrize("n_cores", [1, 2, 4, 8])
def test_an_idle_machine_uses_every_core(n_cores: int) -> None:
    machine = Machine(n_cores)
    assert set(machine.run(ThreadGovernor(n_cores, machine.probe), 100)) == {n_cores}


@pytest.mark.parametrize(("n_cores", "others", "threads"), [(2, 1.0, 1), (4, 1.0, 3), (8, 2.5, 5), (4, 9.0, 1)])
def test_a_busy_machine_leaves_the_others_their_cores(n_cores: int, others: float, threads: int) -> None:
    machine = Machine(n_cores)
    machine.others = others
    assert machine.run(ThreadGovernor(n_cores, machine.probe), 40)[-20:] == [threads] * 20


def test_a_change_of_load_is_followed_within_twenty_tokens() -> None:
    machine = Machine(2)
    governor = ThreadGovernor(2, machine.probe)
    machine.run(governor, 50)
    machine.others = 1.0
    assert machine.run(governor, 20)[-1] == 1
    machine.others = 0.0
    assert machine.run(governor, 20)[-1] == 2


def test_a_hiccup_of_others_does_not_add_threads_back_at_once() -> None:
    machine = Machine(2)
    machine.others = 1.0
    governor = ThreadGovernor(2, machine.probe)
    machine.run(governor, 20)
    machine.others = 0.0
    machine.run(governor, 4)
    machine.others = 1.0
    assert machine.run(governor, 40) == [1] * 40


def test_a_fixed_count_is_never_changed() -> None:
    machine = Machine(4)
    machine.others = 3.0
    governor = ThreadGovernor(4, machine.probe, fixed=4)
    assert set(machine.run(governor, 40)) == {4}
    assert governor.threads_prefill == 4


def test_where_the_load_cannot_be_told_every_core_is_used() -> None:
    governor = ThreadGovernor(4, lambda: None)
    assert not governor.update()
    assert governor.threads == 4


def test_prompts_use_second_threads_of_cores_only_on_a_calm_machine() -> None:
    machine = Machine(4)
    governor = ThreadGovernor(4, machine.probe, n_prefill=8)
    assert governor.threads_prefill == 8
    machine.others = 1.0
    machine.run(governor, 20)
    assert governor.threads_prefill == 3
