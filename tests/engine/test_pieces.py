"""A prompt says the same whatever of it was known, on a backend whose rows depend on their place in the batch."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localrun.engine.disk_prefix import DiskPrefix
from localrun.engine.engine import Engine
from localrun.engine.kv_store import KVStore
from localrun.engine.pieces import GROUP, next_piece, reusable
from localrun.params import GenerationParams
from tests.engine.driver import GREEDY, Listener, make, run
from tests.fakes import FakeBackend

DOCUMENT = bytes(range(97, 123)) * 8
"""No two beginnings of different length end alike."""


def engine(n_tail: int, root: Path | None = None) -> tuple[Engine, DiskPrefix | None]:
    backend = FakeBackend(n_batch=128, n_tail=n_tail, rounds=True)
    store = KVStore(root, "a model", block_tokens=32, budget_bytes=1 << 30) if root is not None else None
    disk = DiskPrefix(backend, store) if store is not None else None
    return Engine(backend, n_parallel=1, n_chunk=128, disk=disk), disk


def ask(engine: Engine, prompt: bytes) -> Listener:
    sequence, listener = make(prompt, GenerationParams(sampling=GREEDY, max_tokens=4))
    run(engine, sequence)
    return listener


@pytest.mark.parametrize("n_tail", [8, 64])
@settings(max_examples=200, deadline=None)
@given(first=st.integers(1, 200), shared=st.integers(1, 200), more=st.integers(1, 100))
def test_cold_in_memory_and_from_disk_a_prompt_says_the_same(n_tail: int, first: int, shared: int, more: int) -> None:
    earlier = DOCUMENT[:first]
    prompt = DOCUMENT[: min(first, shared)] + b"?" * min(more, 250 - min(first, shared))
    cold = ask(engine(n_tail)[0], prompt).text
    one, _ = engine(n_tail)
    ask(one, earlier)
    assert ask(one, prompt).text == cold
    with tempfile.TemporaryDirectory() as folder:
        for asked in (earlier, prompt):
            again, disk = engine(n_tail, Path(folder))
            listener = ask(again, asked)
            assert disk is not None
            disk.close()
        assert listener.text == cold


@given(n_known=st.integers(0, 400), n_tokens=st.integers(1, 400), n_tail=st.sampled_from([8, 64]))
def test_what_is_reused_leaves_a_whole_last_piece_and_loses_less_than_a_group(
    n_known: int, n_tokens: int, n_tail: int
) -> None:
    n = reusable(n_known, n_tokens, n_tail)
    assert n % GROUP == 0
    assert n <= n_known
    assert n == 0 or n_tail <= n <= n_tokens - n_tail
    assert n > min(n_known, n_tokens - n_tail) - GROUP or min(n_known, n_tokens - n_tail) < n_tail


@given(pending=st.integers(1, 3000), room=st.integers(72, 512), n_tail=st.sampled_from([8, 64]))
def test_pieces_are_whole_groups_and_the_last_one_is_long_enough(pending: int, room: int, n_tail: int) -> None:
    left = pending
    while left:
        piece = next_piece(left, room, n_tail)
        assert 0 < piece <= room
        left -= piece
        assert left == 0 or (piece % GROUP == 0 and left >= n_tail)


@given(pending=st.integers(1, 300), room=st.integers(1, 71), n_tail=st.sampled_from([8, 64]))
def test_however_little_room_there_is_a_prompt_goes_on(pending: int, room: int, n_tail: int) -> None:
    assert 0 < next_piece(pending, room, n_tail) <= min(pending, room)
