"""Responders on the real small models, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from localrun.catalog import ModelFile
from localrun.local import LocalResponder
from localrun.params import EngineParams, GenerationParams, SamplingParams
from localrun.responder import Done, Request, Result

GREEDY = SamplingParams(temperature=0)
Open = Callable[..., LocalResponder]


@pytest.fixture
def open_model(smollm2: Path, gemma3: Path) -> Iterator[Open]:
    """Opens a model with engine parameters; one thread, which busy machines forgive."""
    with ExitStack() as stack:

        def make(name: str = "smollm2", **params: Any) -> LocalResponder:
            path = {"smollm2": smollm2, "gemma3": gemma3}.get(name, Path(name))
            values = {"threads": 1, "n_ctx": 2048, "cache": False, **params}
            responder = LocalResponder(ModelFile(path, path.stem, "file"), EngineParams(**values))
            stack.callback(responder.close)
            return responder

        yield make


def raw(text: str, n: int = 16, **params: Any) -> Request:
    """A request without a template."""
    return Request(GenerationParams(sampling=GREEDY, max_tokens=n, **params), raw=text.encode())


def result(responder: LocalResponder, request: Request) -> Result:
    """The result of one request."""
    *_, last = responder.respond(request)
    assert isinstance(last, Done)
    return last.result
