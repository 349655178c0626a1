"""Promises of the thread that owns an engine."""

from __future__ import annotations

import threading

from localrun.engine.engine import Engine
from localrun.engine.events import EngineEvent, Finished
from localrun.engine.worker import EngineWorker
from tests.engine.driver import make
from tests.fakes import FakeBackend


def test_the_backend_rests_between_answers_and_never_inside_one() -> None:
    backend = FakeBackend()
    worker = EngineWorker(Engine(backend, n_parallel=1), backend)
    ends = [0]
    for prompt in (b"Tell me", b"What else"):
        sequence, _ = make(prompt)
        done = threading.Event()

        def notify(event: EngineEvent, done: threading.Event = done) -> None:
            if isinstance(event, Finished):
                ends.append(len(backend.decodes))
                done.set()

        sequence.notify = notify
        worker.submit(sequence)
        assert done.wait(10)
    worker.close()
    assert ends[1] > 2
    assert set(backend.rested_at) == set(ends)
