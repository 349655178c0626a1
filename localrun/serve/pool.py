"""The models of a server: loaded when somebody asks, unloaded when another needs the room, replaced when they fail.

Knows names, memory and who uses what; knows no request. Invariants: a name that a client sends is only looked up in the
table made at the start; a model in use is never unloaded; one model is loaded at a time; nobody is handed a model whose
engine has failed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from localrun.errors import DoesNotFitError, LocalrunError
from localrun.serve.failures import ENGINE_FAILED, ApiError, as_api_error, engine_failed
from localrun.serve.metrics import Metrics
from localrun.serve.servable import Closable, Loaded, Servable, State

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
"""Between attempts to load a model again whose engine has failed."""
_PATIENCE_S = 5.0
"""How long a model waits for another to be idle before that one takes no more work."""
_LEAVE_S = 30.0
"""How long the answers of a failed engine may take to end. Each is told of the failure at once."""


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
        self._problems: dict[str, str] = {}
        """Models that are not there as they should be, and why: the engine has failed, or loading has."""
        self._burials: set[asyncio.Task[None]] = set()
        self._revivals: dict[str, asyncio.Task[None]] = {}
        self._freed = asyncio.Event()
        self._wanted: Counter[str] = Counter()
        """How many are about to use a model: one that was loaded for somebody is not unloaded before he had it."""
        self._in_turn = asyncio.Event()
        """Cleared while a model has waited for room too long: those in memory take no more work meanwhile."""
        self._in_turn.set()
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
        """A loaded model, kept loaded meanwhile.

        Raises `ApiError` for an unknown name or a load that fails, and tells whoever meets the failure of an engine.
        """
        entry = await self._taken(self._find(name))
        try:
            yield entry
        except ApiError as error:
            if entry.has_failed and error.status >= 500 and error.code != ENGINE_FAILED:
                raise engine_failed(error) from error
            raise
        finally:
            entry.users -= 1
            entry.last_used = time.time()
            if not entry.users:
                self._freed.set()
            self.look()

    async def _taken(self, servable: Servable) -> Loaded:
        """The model, loaded, with one user more."""
        name = servable.name
        self._wanted[name] += 1
        try:
            await self._in_turn.wait()
            self.look()
            while (entry := self._loaded.get(name)) is None:
                # A task of the pool: a client that goes away must not leave a half loaded model to nobody.
                await asyncio.shield(self._load_task(servable))
            entry.users += 1
            return entry
        finally:
            self._wanted[name] -= 1
            self._freed.set()  # one who has gone away wants it no more

    def look(self) -> None:
        """Let go of models whose engine has failed, and begin to load them again."""
        for entry in self.loaded:
            if entry.has_failed:
                self._replace(entry)

    def state(self, name: str) -> State:
        """How it stands with a model."""
        if name in self._loaded:
            return "loaded"
        if name in self._tasks:
            return "loading"
        return "failed" if name in self._problems else "unloaded"

    def problem(self, name: str) -> str | None:
        """Why a model is not there though somebody wanted it."""
        return self._problems.get(name)

    @property
    def is_reviving(self) -> bool:
        """Whether a model whose engine has failed is not back yet."""
        return bool(self._revivals)

    async def close(self) -> None:
        """Unload everything."""
        self._closed = True
        for task in self._revivals.values():
            task.cancel()
        await self._buried()
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
        await self._buried()  # its memory is needed
        async with self._loading:
            try:
                model = await self._opened(servable)
            except ApiError as error:
                self._problems[servable.name] = error.message
                raise
            finally:
                self._in_turn.set()
            now = time.time()
            self._loaded[servable.name] = Loaded(servable, model, now, now)
            self._problems.pop(servable.name, None)
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
            idle = [entry for name, entry in self._loaded.items() if not entry.users and not self._is_wanted(name)]
            if idle:
                await self._unload(min(idle, key=lambda entry: entry.last_used))
                return
            self._freed.clear()
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._freed.wait()
            except TimeoutError:
                self._in_turn.clear()

    def _is_wanted(self, name: str) -> bool:
        """Whether somebody is about to use a loaded model. Those who wait for their turn are not."""
        return self._in_turn.is_set() and self._wanted[name] > 0

    async def _unload(self, entry: Loaded) -> None:
        del self._loaded[entry.servable.name]
        self._metrics.loaded.set(len(self._loaded))
        await asyncio.to_thread(entry.model.close)

    # engines that fail

    def _replace(self, entry: Loaded) -> None:
        name = entry.servable.name
        logger.error("the engine of %s has failed: the model is loaded again", name)
        del self._loaded[name]
        self._problems[name] = "its engine has failed"
        self._metrics.loaded.set(len(self._loaded))
        self._metrics.failures.labels(name).inc()
        burial = asyncio.create_task(self._bury(entry))
        self._burials.add(burial)
        burial.add_done_callback(self._burials.discard)
        if not self._closed:
            self._load_task(entry.servable)  # at once: nobody shall see it as neither loaded nor loading
            self._revivals[name] = asyncio.create_task(self._revive(entry.servable))

    async def _bury(self, entry: Loaded) -> None:
        """Free a failed model once nobody touches it any more."""
        try:
            async with asyncio.timeout(_LEAVE_S):
                await entry.calm.wait()
        except TimeoutError:
            # Freeing what is in use would end the process; what is not freed costs memory only.
            logger.error("answers of the failed engine of %s do not end: it is not freed", entry.servable.name)
            return
        try:
            await asyncio.to_thread(entry.model.close)
        except Exception:  # it has failed before; what it held is lost, and the server goes on
            logger.exception("the failed engine of %s could not be freed", entry.servable.name)

    async def _buried(self) -> None:
        while self._burials:
            await asyncio.wait(self._burials)

    async def _revive(self, servable: Servable) -> None:
        """Load a model again, however long it takes: a server that is asked nothing while it is ill gets well too."""
        pause = _FIRST_PAUSE_S
        try:
            while not self._closed and servable.name not in self._loaded:
                try:
                    await asyncio.shield(self._load_task(servable))
                    return
                except ApiError as error:
                    logger.error("%s could not be loaded again: %s", servable.name, error.message)
                except Exception:  # a bug while it is loaded: the next attempt may go well
                    logger.exception("%s could not be loaded again", servable.name)
                await asyncio.sleep(pause)
                pause = min(_LONGEST_PAUSE_S, 2 * pause)
        finally:
            if self._revivals.get(servable.name) is asyncio.current_task():
                del self._revivals[servable.name]
