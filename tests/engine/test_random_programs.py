"""Random programs of submit, cancel, step and forget: nothing leaks, and every text is the text it would be alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localrun.engine.engine import Engine
from localrun.engine.ports import MemoryKind
from localrun.params import GenerationParams
from tests.engine.driver import GREEDY, Listener, make, run
from tests.fakes import FakeBackend

PROMPTS = [b"the common beginning" + bytes([97 + i % 3]) * (i * 3) + bytes([65 + i]) for i in range(8)]
PARAMS = [GenerationParams(sampling=GREEDY, max_tokens=n, priority=n % 2) for n in (1, 5, 17)]
OPERATIONS = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 7), st.integers(0, 2)),
    st.tuples(st.just("cancel"), st.integers(0, 20), st.just(0)),
    st.tuples(st.just("step"), st.integers(1, 9), st.just(0)),
    st.tuples(st.just("forget"), st.just(0), st.just(0)),
)


@pytest.mark.parametrize(("kind", "window"), [("full", 0), ("window", 24), ("state", 0)])
@settings(max_examples=350, deadline=None)
@given(program=st.lists(OPERATIONS, max_size=25), n_cells=st.sampled_from([90, 200, 1000]))
def test_texts_are_those_of_single_runs_and_nothing_leaks(
    kind: MemoryKind, window: int, program: list[tuple[str, int, int]], n_cells: int
) -> None:
    def backend() -> FakeBackend:
        return FakeBackend(
            n_ctx_seq=80, n_cells=n_cells, n_batch=32, n_seq_max=6, memory_kind=kind, n_window=window, eog_rate=0.03
        )

    shared = backend()
    engine = Engine(shared, n_parallel=3, n_chunk=16)
    started: list[tuple[object, Listener, int, int]] = []
    for operation, a, b in program:
        if operation == "submit":
            sequence, listener = make(PROMPTS[a], PARAMS[b])
            engine.submit(sequence)
            started.append((sequence, listener, a, b))
        elif operation == "cancel" and a < len(started):
            started[a][0].cancelled = True  # type: ignore[attr-defined]
        elif operation == "step":
            for _ in range(a):
                engine.step()
        elif operation == "forget":
            engine.forget_prefixes()
    run(engine)
    for _, listener, a, b in started:
        sequence, single = make(PROMPTS[a], PARAMS[b])
        run(Engine(backend(), n_parallel=1, n_chunk=16), sequence)
        if listener.finished.reason == "interrupted":
            assert single.text.startswith(listener.text)
        else:
            assert listener.text == single.text
            assert listener.finished.reason == single.finished.reason
    engine.forget_prefixes()
    assert shared.cells == []
    assert shared.samplers_open == 0
