"""The `Responder` for an engine elsewhere.

Knows when to try again, and what to say to whom; knows neither HTTP nor fields. Invariants: a request is sent again
only while the caller has seen nothing of its answer; what the server cannot do is a warning before anything is sent;
`stop` ends every wait.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from localrun.errors import LocalrunError, ModelNotFoundError, RemoteError, UsageError
from localrun.remote.capabilities import Capabilities, Memory, discover
from localrun.remote.connection import Connection, PassingError, RefusedKeyError, error_object
from localrun.remote.control import Control
from localrun.remote.payload import build, refusal
from localrun.remote.reading import BrokenOffError, Reading
from localrun.remote.settings import EngineSettings
from localrun.remote.wire import EndOfStream, events
from localrun.responder import Done, Event, ModelIdentity, ModelInfo, PrefillProgress, Request, WarningRaised

if TYPE_CHECKING:
    from localrun.constraint.checked import CheckedConstraint

logger = logging.getLogger(__name__)

_BACKOFF_S, _LONGEST_PAUSE_S = 0.5, 30.0
_LONGEST_RETRY_AFTER_S = 300.0
"""A server that asks for a longer pause has no time for us today."""


class RemoteSink(Protocol):
    """Takes the events of several answers."""

    def put(self, item: tuple[RemoteAnswer, Event | LocalrunError]) -> None: ...


class RemoteAnswer:
    """An answer of a batch in the making: its events go to a sink."""

    def __init__(self, request: Request, stop: Callable[[], None]) -> None:
        self.request = request
        self.stop = stop

    def close(self) -> None:
        """Cancel it if it still runs. Idempotent."""
        self.stop()


class RemoteResponder:
    """One model of a remote engine."""

    def __init__(
        self,
        settings: EngineSettings,
        model: str | None = None,
        *,
        memory: Memory | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Asks the server what it is. Raises `RemoteError`, `ModelNotFoundError`, `UsageError`."""
        self._settings = settings
        self._memory = memory or Memory()
        self._jitter = jitter
        self._connection = Connection(settings)
        self._lock = threading.Lock()
        self._controls: set[Control] = set()
        self._closed = False
        try:
            self._server = discover(self._connection, settings, self._memory)
            self._model = _chosen(settings, self._server, model)
        except BaseException:
            self._connection.close()
            raise

    # the Responder interface --------------------------------------------------------------------------------------

    @cached_property
    def info(self) -> ModelInfo:
        dialect = self._server.speaks
        return ModelInfo(
            identity=ModelIdentity(self._model),
            context_limit=self._context_limit,
            can_chat=True,
            can_think=dialect.think != "none",
            details={"engine": self._settings.name, "server": dialect.title},
        )

    def respond(self, request: Request) -> Iterator[Event]:
        """Yield the events of one answer. Closing the iterator cancels it."""
        control = self._begin(request)
        try:
            yield from self._answer(request, control)
        finally:
            control.end()
            self._finish(control)

    def stop(self) -> None:
        """End every running answer: it keeps its text. Any thread may call it."""
        with self._lock:
            controls = list(self._controls)
        for control in controls:
            control.end()

    def count_tokens(self, request: Request) -> int:
        """Prompt tokens as the server counts them: by its tokenizer where it has one for prompts, else by asking it
        for one token."""
        params = replace(request.params, max_tokens=1, constraint=None, stop=(), timeout_s=None)
        counted: int | None = None
        for event in self.respond(replace(request, params=params)):
            if isinstance(event, Done):
                counted = event.result.usage.prompt_tokens
        if not counted:
            raise RemoteError(f"{self._settings.name} does not say how many tokens a prompt has")
        return counted

    def close(self) -> None:
        """End everything. Idempotent."""
        self._closed = True
        self.stop()
        if "_pool" in self.__dict__:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._connection.close()

    # many at a time -----------------------------------------------------------------------------------------------

    def start(self, request: Request, sink: RemoteSink) -> RemoteAnswer:
        """Begin an answer of a batch and return at once. The sink gets warnings and, last, `Done` or an error.

        As many run at a time as the engine's `parallel` says; a broken one is asked for again from its start.
        """
        control = self._begin(request)
        answer = RemoteAnswer(request, control.end)
        self._pool.submit(self._run, answer, control, sink)
        return answer

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._settings.parallel, thread_name_prefix="localrun-remote")

    def _run(self, answer: RemoteAnswer, control: Control, sink: RemoteSink) -> None:
        try:
            for event in self._answer(answer.request, control, whole=True):
                if isinstance(event, WarningRaised | Done):
                    sink.put((answer, event))
        except LocalrunError as error:
            sink.put((answer, error))
        except Exception as error:  # a bug of ours must reach whoever waits for the answer
            logger.exception("a remote answer failed")
            sink.put((answer, RemoteError(f"a bug of ours: {type(error).__name__}: {error}")))
        finally:
            self._finish(control)

    # one answer ---------------------------------------------------------------------------------------------------

    def _begin(self, request: Request) -> Control:
        if self._closed:
            raise RemoteError("the engine is closed")
        if request.tools:
            raise UsageError("tools are not passed to remote engines")
        control = Control(request.params.timeout_s)
        with self._lock:
            self._controls.add(control)
        return control

    def _finish(self, control: Control) -> None:
        control.close()
        with self._lock:
            self._controls.discard(control)

    def _answer(self, request: Request, control: Control, *, whole: bool = False) -> Iterator[Event]:
        """The events of one answer; with `whole`, pieces of text are not yielded, so it can always be tried again."""
        constraint = _checked(request)
        seed = request.params.sampling.seed
        seed = seed if seed is not None else int.from_bytes(os.urandom(4), "little") % (2**31 - 1)
        payload = build(request, self._server.speaks, self._model, seed, frozenset(self._server.refused))
        warnings = list(payload.warnings)
        for warning in warnings:
            yield WarningRaised(warning)
        tries = 0
        while True:
            reading = Reading(
                request,
                model=self._model,
                seed=seed,
                context_limit=self._context_limit,
                echo=request.prefill if self._server.speaks.echoes_prefill else "",
                constraint=constraint,
                warnings=warnings,
            )
            try:
                with self._connection.stream(payload.path, payload.body, control) as chunks:
                    for event in reading.take(self._watched(events(chunks))):
                        if not whole or isinstance(event, WarningRaised | PrefillProgress):
                            yield event
                yield reading.done(control.reason)
                return
            except RefusedKeyError as error:
                self._learn(error)
                warning = refusal(error.key, self._server.speaks)
                if error.key != "max_tokens":
                    warnings.append(warning)
                    yield WarningRaised(warning)
                payload = build(request, self._server.speaks, self._model, seed, frozenset(self._server.refused))
            except (PassingError, BrokenOffError) as error:
                if control.reason is not None:
                    yield reading.done(control.reason)
                    return
                tries += 1
                self._wait(error, tries, control, may_retry=whole or not reading.begun)
            except LocalrunError:
                if control.reason is None:
                    raise
                yield reading.done(control.reason)
                return
            if control.reason is not None:
                yield reading.done(control.reason)
                return

    def _watched(self, chunks: Iterator[dict[str, Any] | EndOfStream]) -> Iterator[dict[str, Any] | EndOfStream]:
        """The chunks, unless one is an error."""
        for chunk in chunks:
            if isinstance(chunk, dict) and chunk.get("error"):
                raise self._connection.mapped_error(error_object(chunk))
            yield chunk

    def _learn(self, refused: RefusedKeyError) -> None:
        if refused.key in self._server.refused:
            raise refused.error  # it was left out, and is refused all the same
        self._server.refused.append(refused.key)
        self._memory.remember(self._settings.base_url, self._server)

    def _wait(self, error: PassingError | BrokenOffError, tries: int, control: Control, *, may_retry: bool) -> None:
        """Pause before the next try. Raises the error instead when there is none left, or none allowed."""
        if isinstance(error, PassingError):
            final, asked = error.error, error.after_s
        else:
            final = RemoteError(f"the connection to {self._settings.name} broke off: {error}")
            asked = None
        if not may_retry:
            raise RemoteError(f"{final.message} (in the middle of the answer)", hint="ask again") from error
        if tries > self._settings.retries or (asked or 0) > _LONGEST_RETRY_AFTER_S:
            raise final from error
        backoff = min(_BACKOFF_S * 2 ** (tries - 1), _LONGEST_PAUSE_S)
        # Full jitter keeps many clients from coming back at the same moment.
        seconds = asked if asked is not None else backoff * (0.5 + self._jitter() / 2)
        logger.info("%s: %s; trying again in %.1f s", self._settings.name, final.message, seconds)
        control.pause(seconds)

    @property
    def _context_limit(self) -> int:
        return self._settings.context or self._server.context.get(self._model, 0)


def _checked(request: Request) -> CheckedConstraint | None:
    if request.params.constraint is None:
        return None
    from localrun.constraint import check

    return check(request.params.constraint)


def _chosen(settings: EngineSettings, server: Capabilities, model: str | None) -> str:
    """The server's name of the model to ask."""
    wanted = model or settings.model
    if wanted is not None:
        wanted = settings.models.get(wanted, wanted)
        if server.models and wanted not in server.models and server.dialect != "openai":
            import difflib

            near = difflib.get_close_matches(wanted, server.models, n=3, cutoff=0.4)
            names = near or server.models[:8]
            raise ModelNotFoundError(
                f"{settings.name} does not have the model {wanted!r}", hint=f"it has {', '.join(names)}"
            )
        return wanted
    if len(server.models) == 1:
        return server.models[0]
    if not server.models:
        raise UsageError(f"{settings.name} does not say which models it has", hint="name one with -m")
    raise UsageError(
        f"{settings.name} has {len(server.models)} models: name one with -m",
        hint=f"it has {', '.join(server.models[:8])}",
    )
