"""The models of a server: loaded when somebody asks, unloaded when another needs the room.

Knows names, memory and who uses what; knows no request. Invariants: a name that a client sends is only looked up in the
table made at the start; a model in use is never unloaded; one model is loaded at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from localrun.errors import DoesNotFitError, LocalrunError
from localrun.responder import ModelInfo, Request
from localrun.serve.failures import ApiError, as_api_error
from localrun.serve.metrics import Metrics


class RunningAnswer(Protocol):
    """An answer in the making."""

    def stop(self) -> None: ...


class Closable(Protocol):
    """Whatever is loaded: a model that answers, or one that gives vectors."""

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


class ModelPool:
    """Hands out loaded models. Used from one event loop."""

    def __init__(
        self,
        servables: list[Servable],
        *,
        metrics: Metrics,
        available: Callable[[], int],
        max_loaded: int | None = None,
    ) -> None:
        """`available` tells the free memory in bytes; `max_loaded` limits how many models are in memory at once."""
        self._servables = {servable.name: servable for servable in servables}
        self._metrics = metrics
        self._available = available
        self._max_loaded = max_loaded
        self._loaded: dict[str, Loaded] = {}
        self._loading = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._freed = asyncio.Event()
        self._closed = False

    @property
    def names(self) -> list[str]:
        return list(self._servables)

    @property
    def servables(self) -> list[Servable]:
        return list(self._servables.values())

    @property
    def loaded(self) -> list[Loaded]:
        return list(self._loaded.values())

    @asynccontextmanager
    async def use(self, name: str | None) -> AsyncIterator[Loaded]:
        """A loaded model, kept loaded meanwhile. Raises `ApiError` for an unknown name, or a load that fails."""
        servable = self._find(name)
        while (entry := self._loaded.get(servable.name)) is None:
            # A task of the pool: a client that goes away must not leave a half loaded model to nobody.
            await asyncio.shield(self._load_task(servable))
        entry.users += 1
        try:
            yield entry
        finally:
            entry.users -= 1
            entry.last_used = time.time()
            if not entry.users:
                self._freed.set()

    async def close(self) -> None:
        """Unload everything."""
        self._closed = True
        async with self._loading:
            for entry in self.loaded:
                await self._unload(entry)

    def _load_task(self, servable: Servable) -> asyncio.Task[None]:
        task = self._tasks.get(servable.name)
        if task is None:
            task = self._tasks[servable.name] = asyncio.create_task(self._load(servable))
            task.add_done_callback(lambda done: self._task_ended(servable.name, done))
        return task

    def _task_ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._tasks[name]
        if not task.cancelled():
            task.exception()  # whoever waits gets it too; this tells asyncio that it was seen

    def _find(self, name: str | None) -> Servable:
        if name is None or name == "":
            return next(iter(self._servables.values()))
        servable = self._servables.get(name)
        if servable is None:
            message = f"the model {name[:100]!r} is not served here; there are {', '.join(self._servables)}"
            raise ApiError(404, message, param="model", code="model_not_found")
        return servable

    async def _load(self, servable: Servable) -> None:
        async with self._loading:
            model = await self._opened(servable)
            now = time.time()
            self._loaded[servable.name] = Loaded(servable, model, now, now)
            self._metrics.loads.labels(servable.name).inc()
            self._metrics.loaded.set(len(self._loaded))

    async def _opened(self, servable: Servable) -> Closable:
        while True:
            if self._closed:
                raise ApiError(503, "the server is stopping", kind="server_error")
            if self._has_room(servable):
                try:
                    return await asyncio.to_thread(servable.load)
                except DoesNotFitError as error:
                    if not self._loaded:
                        raise as_api_error(error) from error
                except LocalrunError as error:
                    raise as_api_error(error) from error
            await self._free_one()

    def _has_room(self, servable: Servable) -> bool:
        if not self._loaded:
            return True  # nothing can be unloaded: whoever loads it says whether it fits
        if self._max_loaded is not None and len(self._loaded) >= self._max_loaded:
            return False
        return servable.n_bytes <= self._available()

    async def _free_one(self) -> None:
        """Unload the least recently used model that nobody uses; wait for one if all are in use."""
        while True:
            idle = [entry for entry in self._loaded.values() if not entry.users]
            if idle:
                await self._unload(min(idle, key=lambda entry: entry.last_used))
                return
            self._freed.clear()
            await self._freed.wait()

    async def _unload(self, entry: Loaded) -> None:
        del self._loaded[entry.servable.name]
        self._metrics.loaded.set(len(self._loaded))
        await asyncio.to_thread(entry.model.close)
