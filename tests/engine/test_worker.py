"""Promises of the thread that owns an engine."""

from __future__ import annotations

import queue
import threading

import pytest

from localrun.engine.engine import Engine
from localrun.engine.events import EngineEvent, Failed, Finished
from localrun.engine.worker import EngineWorker
from localrun.errors import EngineError
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


def test_whoever_hands_in_a_sequence_hears_its_end_however_close_the_worker_is_to_closing() -> None:
    for _ in range(200):
        backend = FakeBackend()
        worker = EngineWorker(Engine(backend, n_parallel=2), backend)
        refused, ended = 0, threading.Semaphore(0)

        def notify(event: EngineEvent, ended: threading.Semaphore = ended) -> None:
            if isinstance(event, Finished):
                ended.release()

        closer = threading.Thread(target=worker.close)
        for i in range(4):
            sequence, _ = make(b"Tell me")
            sequence.notify = notify
            try:
                worker.submit(sequence)
            except EngineError:
                refused += 1
            if i == 1:
                closer.start()
        closer.join()
        for _ in range(4 - refused):
            assert ended.acquire(timeout=10)


def test_a_call_before_the_end_is_run_and_one_after_it_is_refused() -> None:
    backend = FakeBackend()
    worker = EngineWorker(Engine(backend, n_parallel=1), backend)
    early = worker.call(lambda: "done")
    worker.close()
    assert early.result(10) == "done"
    with pytest.raises(EngineError, match="closed"):
        worker.call(lambda: "never")


def test_a_worker_that_fails_tells_everybody_and_takes_nobody_more(caplog: pytest.LogCaptureFixture) -> None:
    backend = FakeBackend()

    class Broken(Engine):
        def step(self) -> None:
            raise RuntimeError("a bug")

    worker = EngineWorker(Broken(backend, n_parallel=1), backend)
    heard: queue.SimpleQueue[EngineEvent] = queue.SimpleQueue()
    sequence, _ = make(b"Tell me")
    sequence.notify = heard.put
    worker.submit(sequence)
    failed = heard.get(timeout=10)
    assert isinstance(failed, Failed)
    assert "a bug" in str(failed.error)
    worker.close()
    with pytest.raises(EngineError, match="closed"):
        worker.submit(make(b"Tell me")[0])
