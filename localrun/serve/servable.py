"""What a server serves: models that can be loaded, and models that are.

Knows what is asked of a model; knows no other model and no request. Invariant: `calm` is set whenever no answer needs
the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from localrun.responder import ModelInfo, Request

State = Literal["loaded", "loading", "failed", "unloaded"]
"""`failed`: it should be there and is not; `unloaded`: it is loaded when somebody asks for it."""


class RunningAnswer(Protocol):
    """An answer in the making."""

    def stop(self) -> None: ...


class Closable(Protocol):
    """Whatever is loaded: a model that answers, or one that gives vectors."""

    @property
    def failed(self) -> bool: ...

    def close(self) -> None: ...


class Model(Closable, Protocol):
    """What the server needs of a model that answers: the local responder, or a test's."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def template(self) -> Any: ...

    def start(self, request: Request, sink: Any) -> RunningAnswer: ...


@dataclass(frozen=True, slots=True)
class Servable:
    """A model that can be loaded."""

    name: str
    load: Callable[[], Closable]
    """Blocks until the model is in memory. Raises `LocalrunError`."""
    n_bytes: int = 0
    """Memory it takes, contexts included, as far as can be said before."""
    details: Mapping[str, Any] = field(default_factory=dict)


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(eq=False, slots=True)
class Loaded:
    """A model in memory."""

    servable: Servable
    model: Any
    """A `Model`, or an `EmbeddingModel` (`embeddings`)."""
    loaded_at: float
    last_used: float
    users: int = 0
    in_flight: int = 0
    """Answers that run or wait."""
    answer_s: float = 1.0
    """How long an answer takes, as far as known: for `Retry-After`."""
    calm: asyncio.Event = field(default_factory=_set_event)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """For a model that does one thing at a time."""

    @property
    def has_failed(self) -> bool:
        """Whether the engine has ended by itself."""
        return bool(self.model.failed)

    def count(self, change: int) -> None:
        """Answers have come or gone."""
        self.in_flight += change
        if self.in_flight:
            self.calm.clear()
        else:
            self.calm.set()
