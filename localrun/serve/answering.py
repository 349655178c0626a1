"""One response on its way: choices are started, followed, and stopped when the client goes.

Knows turns, the pool and the relay; writes streams and whole bodies through ASGI. Invariants: a client that goes away
stops its answers within one step of the engine; a slow reader holds up nobody but itself; an error before the first
event has its status, one after it is an event of the stream.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from localrun.errors import LocalrunError
from localrun.responder import Event, TokenChosen, Warning_
from localrun.serve.asking import Ask
from localrun.serve.failures import ApiError, as_api_error, engine_failed
from localrun.serve.guard import Receive, Scope, Send
from localrun.serve.metrics import Metrics
from localrun.serve.relay import Channel, Relay
from localrun.serve.servable import Loaded, RunningAnswer
from localrun.serve.shapes import END_OF_STREAM, Shapes
from localrun.serve.tool_form import ToolForm
from localrun.serve.turn import Ended, Told, Turn

logger = logging.getLogger(__name__)

GONE = 499
"""What logs and metrics say of a client that went away; nginx's number."""
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the stream otherwise
]


class Answering:
    """All choices of one response."""

    def __init__(
        self,
        ask: Ask,
        loaded: Loaded,
        relay: Relay,
        metrics: Metrics,
        form: ToolForm | None,
        *,
        over: Callable[[], None],
        patience_s: float,
    ) -> None:
        """`over` is called for each choice that the engine is done with, however long the client takes to read it.

        `patience_s` is how long a client may read nothing.
        """
        self.ask = ask
        self._loaded = loaded
        self._metrics = metrics
        self._over = over
        self.patience_s = patience_s
        self._channel = Channel(relay)
        self.turns = [Turn(request, ask.tools, form) for request in ask.requests]
        self._running: dict[int, RunningAnswer] = {}
        self._stopped = False
        self.gone = False
        """The client has gone away."""

    @property
    def model(self) -> str:
        """The name of the model that answers."""
        return self._loaded.servable.name

    def stop(self) -> None:
        """End all choices soon."""
        self._stopped = True
        for answer in self._running.values():
            answer.stop()

    def leave(self) -> None:
        """The client has gone away."""
        self.gone = True
        self.stop()

    async def follow(self) -> AsyncIterator[list[tuple[int, list[Told]]]]:
        """What happens, until all choices have ended. Raises `ApiError` for the first that fails."""
        for index, turn in enumerate(self.turns):
            await self._start(index, turn)
        while not all(turn.over for turn in self.turns):
            news: dict[int, list[Told]] = {}
            for index, event in await self._channel.take():
                news.setdefault(index, []).extend(self._take(index, event))
            yield list(news.items())
            for index in news:
                turn = self.turns[index]
                if turn.error is not None:
                    self.stop()
                    raise self._api_error(turn.error, turn)
                if turn.request is not None:
                    await self._start(index, turn)

    async def settle(self) -> None:
        """Stop what still runs, and wait until the engine has let go of it."""
        self.stop()
        while not all(turn.over or turn.request is not None for turn in self.turns):
            for index, event in await self._channel.take():
                self._take(index, event)

    def _take(self, index: int, event: Event | LocalrunError) -> list[Told]:
        turn = self.turns[index]
        told = list(turn.take(event))
        if turn.over:
            self._over()
        if turn.result is not None:
            self._metrics.finished(self.model, turn.result)
            self._loaded.answer_s += (turn.result.timings.total_s - self._loaded.answer_s) / 8
        return told

    async def _start(self, index: int, turn: Turn) -> None:
        request, turn.request = turn.request, None
        assert request is not None
        try:
            # In a thread: rendering and tokenizing a long prompt, or compiling a schema, takes a while.
            answer = await asyncio.to_thread(self._loaded.model.start, request, self._channel.sink(index))
        except LocalrunError as error:
            turn.error = error
            raise self._api_error(error, turn) from error
        except BaseException:
            turn.request = request
            raise
        self._running[index] = answer
        if self._stopped:
            answer.stop()

    def _api_error(self, error: LocalrunError, turn: Turn) -> ApiError:
        api = as_api_error(error, param=turn.constrained_by)
        return engine_failed(api) if self._loaded.has_failed and api.status >= 500 else api

    @property
    def warnings(self) -> list[Warning_]:
        """Of the request and of all choices."""
        ended = [turn.ended.result.warnings for turn in self.turns if turn.ended is not None]
        return [*self.ask.warnings, *(warning for warnings in ended for warning in warnings)]


async def respond(answering: Answering, scope: Scope, receive: Receive, send: Send) -> int:
    """Write the whole response; returns its status for the log. Raises `ApiError` while nothing has been written."""
    ask = answering.ask
    shapes = Shapes(chat=ask.chat, model=answering.model, per_prompt=ask.per_prompt)
    try:
        async with watched(receive, answering.leave):
            await (_stream if ask.stream else _whole)(answering, shapes, send)
    except ApiError:
        if not answering.gone:
            raise
    except TimeoutError:
        logger.info("a client has read nothing for %g s: its answer is dropped", answering.patience_s)
        answering.gone = True
    finally:
        await answering.settle()
    return GONE if answering.gone else 200


@asynccontextmanager
async def watched(receive: Receive, leave: Callable[[], None] = lambda: None) -> AsyncIterator[asyncio.Event]:
    """An event that is set, and `leave` called, when the client goes away meanwhile. The body has been read."""
    gone = asyncio.Event()

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        gone.set()
        leave()

    watcher = asyncio.create_task(watch())
    try:
        yield gone
    finally:
        watcher.cancel()


async def _whole(answering: Answering, shapes: Shapes, send: Send) -> None:
    told: list[list[Told]] = [[] for _ in answering.turns]
    async for news in answering.follow():
        for index, items in news:
            told[index].extend(items)
    body = shapes.whole(told, answering.warnings, echo=answering.ask.echo)
    async with asyncio.timeout(answering.patience_s):
        await send_json(send, 200, body)


async def _stream(answering: Answering, shapes: Shapes, send: Send) -> None:
    ask = answering.ask
    begun = False

    async def write(data: bytes, *, last: bool = False) -> None:
        async with asyncio.timeout(answering.patience_s):
            await send({"type": "http.response.body", "body": data, "more_body": not last})

    try:
        async for news in answering.follow():
            if not begun and all(turn.error is None for turn in answering.turns):
                begun = True
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                await write(_opening(answering, shapes))
            if data := b"".join(_chunks(shapes, index, items, ask) for index, items in news):
                await write(data)
    except ApiError as error:
        if not begun:
            raise
        await write(shapes.error(error.body), last=True)
        return
    data = b""
    if warnings := answering.warnings:
        data += shapes.warnings_chunk(warnings)
    if ask.stream_usage:
        data += shapes.usage_chunk(turn.ended.result for turn in answering.turns if turn.ended is not None)
    await write(data + END_OF_STREAM, last=True)


def _opening(answering: Answering, shapes: Shapes) -> bytes:
    if answering.ask.chat:
        return b"".join(shapes.role(index) for index in range(len(answering.turns)))
    return shapes.text(0, answering.ask.echo) if answering.ask.echo else b""


def _chunks(shapes: Shapes, index: int, items: list[Told], ask: Ask) -> bytes:
    if ask.logprobs:
        # One token a chunk: its piece may come later, when a character is whole.
        groups: list[list[Told]] = []
        for item in items:
            if not groups or isinstance(item, TokenChosen | Ended):
                groups.append([])
            groups[-1].append(item)
        return b"".join(shapes.chunks(index, group, progress=ask.progress) for group in groups)
    return shapes.chunks(index, items, progress=ask.progress)


async def send_json(send: Send, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
    """A whole JSON response."""
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    fields = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    fields += [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": data})
