"""States on disk, for memories that cannot be cut: found again, used only whole, never trusted blindly."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from localrun.engine.disk_states import DiskStates
from localrun.engine.engine import Engine
from localrun.engine.kv_store import KVStore
from localrun.engine.sequence import Sequence
from localrun.params import GenerationParams
from tests.engine.driver import GREEDY, make, run
from tests.fakes import FakeBackend

LONG = GenerationParams(sampling=GREEDY, max_tokens=100)


def document(n: int, seed: int = 1) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(33, 120) for _ in range(n)]


def answer(
    root: Path | None, prompt: list[int], params: GenerationParams | None = None, *, n_parallel: int = 1
) -> tuple[str, Sequence, FakeBackend]:
    """What a process that ends afterwards says."""
    backend = FakeBackend(memory_kind="state", n_ctx_seq=4096, n_cells=8192, n_batch=2048)
    disk = DiskStates(backend, KVStore(root, "model", budget_bytes=1 << 30)) if root is not None else None
    sequence, listener = make(prompt, params)
    run(Engine(backend, n_parallel=n_parallel, disk=disk), sequence)
    if disk is not None:
        disk.close()
    return listener.text, sequence, backend


def test_a_second_process_computes_the_end_of_a_prompt_only(tmp_path: Path) -> None:
    prompt = document(1000)
    cold = answer(None, prompt)[0]
    assert answer(tmp_path, prompt)[0] == cold
    text, sequence, _ = answer(tmp_path, prompt)
    assert text == cold
    assert sequence.n_cached_disk == 992
    assert sequence.n_cached_ram == 0


@pytest.mark.parametrize("n_question", [1, 40, 120])
def test_another_question_finds_the_state_before_the_first(tmp_path: Path, n_question: int) -> None:
    text = document(1500)
    answer(tmp_path, text + document(100, seed=2))
    other = text + document(n_question, seed=3)
    said, sequence, _ = answer(tmp_path, other)
    assert said == answer(None, other)[0]
    assert sequence.n_cached_disk == 1024


def test_the_next_turn_goes_on_behind_the_answer(tmp_path: Path) -> None:
    prompt = document(300)
    text, first, _ = answer(tmp_path, prompt, LONG)
    turn = prompt + list(text.encode()) + document(20, seed=4)
    said, second, _ = answer(tmp_path, turn)
    assert said == answer(None, turn)[0]
    assert first.n_computed - 32 <= second.n_cached_disk <= first.n_computed


def test_short_prompts_leave_nothing(tmp_path: Path) -> None:
    answer(tmp_path / "cache", document(40))
    assert not (tmp_path / "cache").exists()


def test_a_damaged_state_is_computed_again(tmp_path: Path) -> None:
    prompt = document(1000)
    cold = answer(tmp_path, prompt)[0]
    states = list(tmp_path.rglob("*.kv"))
    assert len(states) == 2
    for path in states:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    text, sequence, _ = answer(tmp_path, prompt)
    assert text == cold
    assert sequence.n_cached_disk == 0


def test_a_state_that_the_engine_refuses_costs_time_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = document(1000)
    cold = answer(tmp_path, prompt)[0]
    monkeypatch.setattr(FakeBackend, "restore_state", lambda *_: False)
    text, sequence, backend = answer(tmp_path, prompt)
    assert text == cold
    assert (sequence.n_cached_disk, sequence.n_cached_ram) == (0, 0)
    assert sum(len(span.tokens) for spans in backend.decodes for span in spans) >= 1000


def test_sequences_beside_each_other_keep_their_own_states(tmp_path: Path) -> None:
    prompts = [document(400 + 50 * i, seed=i) for i in range(4)]
    expected = [answer(None, prompt)[0] for prompt in prompts]
    for _ in range(2):
        backend = FakeBackend(memory_kind="state", n_ctx_seq=4096, n_cells=8192, n_batch=2048)
        disk = DiskStates(backend, KVStore(tmp_path, "model", budget_bytes=1 << 30))
        pairs = [make(prompt) for prompt in prompts]
        run(Engine(backend, n_parallel=4, disk=disk), *(sequence for sequence, _ in pairs))
        disk.close()
        assert [listener.text for _, listener in pairs] == expected
    assert all(sequence.n_cached_disk >= 384 for sequence, _ in pairs)


def test_what_is_in_the_memory_already_is_not_read(tmp_path: Path) -> None:
    backend = FakeBackend(memory_kind="state", n_ctx_seq=4096, n_cells=8192, n_batch=2048)
    store = KVStore(tmp_path, "model", budget_bytes=1 << 30)
    engine = Engine(backend, n_parallel=1, disk=DiskStates(backend, store))
    sequence, listener = make(document(300))
    run(engine, sequence)
    longer, _ = make(document(300) + list(listener.text.encode()) + [65])
    run(engine, longer)
    assert longer.n_cached_ram > 300
    assert (longer.n_cached_disk, store.counters.read_bytes) == (0, 0)
