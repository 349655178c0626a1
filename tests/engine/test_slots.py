"""What is kept for its prefix costs those who run little."""

from __future__ import annotations

import pytest

from localrun.engine.slots import Slots
from tests.fakes import FakeBackend

PREFIX = list(range(1000, 1300))


def rows(n: int) -> list[list[int]]:
    """Prompts of 100 tokens of their own behind a common prefix of 300."""
    return [PREFIX + [2000 + 100 * i + j for j in range(100)] for i in range(n)]


def make(*, n_reserved: int = 1, kind: str = "full") -> Slots:
    backend = FakeBackend(n_ctx_seq=4096, n_cells=16384, memory_kind=kind)  # type: ignore[arg-type]
    return Slots(backend, n_running_max=6, n_reserved=n_reserved)


def test_a_conversation_stays_while_nobody_runs() -> None:
    slots, tokens = make(), rows(1)[0]
    slots.release(slots.lease(tokens).slot, tokens)
    assert slots.n_idle == 1
    assert slots.match([*tokens, *range(8)]) == 400


@pytest.mark.parametrize(("n_reserved", "kind", "kept"), [(1, "full", 1), (0, "full", 4), (1, "state", 5)])
def test_beside_a_running_sequence_finished_ones_keep_little_of_their_own(
    n_reserved: int, kind: str, kept: int
) -> None:
    slots = make(n_reserved=n_reserved, kind=kind)
    leases = [(slots.lease(tokens).slot, tokens) for tokens in rows(6)]
    for slot, tokens in leases:
        slots.record(slot, tokens)
    for slot, tokens in leases[:5]:
        slots.release(slot, tokens)
    assert slots.n_idle == kept


def test_the_one_that_was_used_last_is_kept_and_the_prefix_is_never_lost() -> None:
    slots = make()
    leases = [(slots.lease(tokens).slot, tokens) for tokens in rows(6)]
    for slot, tokens in leases:
        slots.record(slot, tokens)
    for slot, tokens in leases[:5]:
        slots.release(slot, tokens)
    matched = [slots.match([*tokens, *range(8)]) for tokens in rows(6)]
    assert matched == [296, 296, 296, 296, 400, 400]  # whole groups of rows
