"""The Python interface on the real model."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from pathlib import Path

import pytest

import localrun
from localrun.responder import Done

pytestmark = pytest.mark.model


def test_a_model_that_is_dropped_is_freed(smollm2: Path) -> None:
    before = {thread for thread in threading.enumerate() if thread.name.startswith("localrun")}
    model = localrun.load(str(smollm2), n_ctx=256, threads=1, cache=False)
    model.generate("Hello", max_tokens=2)
    context = weakref.ref(model._responder._context)  # type: ignore[type-var]
    del model
    gc.collect()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and context() is not None:
        time.sleep(0.05)
        gc.collect()
    assert context() is None
    assert {thread for thread in threading.enumerate() if thread.name.startswith("localrun")} <= before


def test_events_of_a_model_that_nobody_else_holds_come_to_their_end(smollm2: Path) -> None:
    events = localrun.load(str(smollm2), n_ctx=256, threads=1, cache=False).events("Hello", max_tokens=4)
    gc.collect()
    *_, last = events
    assert isinstance(last, Done)
    assert last.result.finish == "length"


@pytest.mark.parametrize("sizes", [{"n_batch": 1}, {"n_batch": 7, "n_parallel": 12}, {"n_ubatch": 1}, {"n_ubatch": 9}])
def test_batches_of_any_size_say_the_same(sizes: dict[str, int], smollm2: Path) -> None:
    said = []
    for params in ({}, sizes):
        with localrun.load(str(smollm2), n_ctx=256, threads=1, cache=False, **params) as model:
            said.append(model.generate("Count: " + "one two three " * 20, max_tokens=6, temperature=0).text)
    assert said[0] == said[1]
