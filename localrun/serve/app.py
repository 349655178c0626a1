"""The application: routes, admission, and what every response has in common.

Knows endpoints; knows no engine and no socket. Invariants: every error is OpenAI's error object, a bug is a 500 that
tells nothing, and what runs or waits never exceeds the queue.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localrun import __version__
from localrun.chat.template import ChatTemplate
from localrun.serve.answering import GONE, Answering, respond, send_json, watched
from localrun.serve.asking import Ask, chat_ask, completion_ask
from localrun.serve.embeddings import EmbeddingModel, embed, embedding_ask
from localrun.serve.failures import ApiError
from localrun.serve.fields import parse_object
from localrun.serve.guard import Guard, Receive, Rules, Scope, Send
from localrun.serve.metrics import CONTENT_TYPE, Metrics
from localrun.serve.openapi import description
from localrun.serve.pool import ModelPool
from localrun.serve.relay import Relay
from localrun.serve.reports import health_report, model_report, models_report, status_report
from localrun.serve.servable import Loaded, Servable
from localrun.serve.tool_form import ToolForm
from localrun.serve.tool_probe import NoToolFormError, tool_form
from localrun.serve.tool_schemas import check_schemas

logger = logging.getLogger(__name__)

_LONGEST_RETRY_AFTER_S = 60
_LARGE_BODY = 64 << 10
"""Bytes; a larger one takes milliseconds to read, up to seconds, in which nobody else would be answered."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How a server behaves."""

    rules: Rules = field(default_factory=Rules)
    parallel: int = 4
    """Answers that run at once."""
    queue: int = 64
    """Answers that may wait beyond those."""
    max_loaded: int | None = None
    patience_s: float = 300.0
    """How long a client may read nothing of its stream before it is dropped."""
    log: Callable[[str], None] | None = None
    """Takes a line for each response."""
    log_prompts: bool = False


class Service:
    """What the endpoints share. Made inside the event loop."""

    def __init__(self, servables: list[Servable], options: ServeOptions, available: Callable[[], int]) -> None:
        self.options = options
        self.metrics = Metrics()
        self.started = time.time()
        self.pool = ModelPool(servables, metrics=self.metrics, available=available, max_loaded=options.max_loaded)
        self.relay = Relay(asyncio.get_running_loop())
        self._forms: WeakKeyDictionary[ChatTemplate, ToolForm] = WeakKeyDictionary()
        """Asking a template takes some milliseconds, so it is done once."""

    async def answer(self, ask: Ask, scope: Scope, receive: Receive, send: Send) -> int:
        """Admit, answer, write. Returns the status. Raises `ApiError` where nothing has been written."""
        async with self.pool.use(ask.model) as loaded:
            if isinstance(loaded.model, EmbeddingModel):
                raise ApiError(
                    400, f"{loaded.servable.name} is an embedding model: it generates no text", param="model"
                )
            form = await self._tool_form(ask, loaded)
            if form is not None:
                requests = tuple(replace(r, messages=form.history(r.messages)) for r in ask.requests)
                ask = replace(ask, requests=requests)
            n = len(ask.requests)
            self._admit(loaded, n)
            self._count(loaded, n)
            left = n

            def over() -> None:
                nonlocal left
                left -= 1
                self._count(loaded, -1)

            patience_s = self.options.patience_s
            answering = Answering(ask, loaded, self.relay, self.metrics, form, over=over, patience_s=patience_s)
            try:
                return await respond(answering, scope, receive, send)
            finally:
                self._count(loaded, -left)

    def _count(self, loaded: Loaded, change: int) -> None:
        loaded.count(change)
        self.metrics.count(loaded.servable.name, loaded.in_flight, self.options.parallel)

    def _admit(self, loaded: Loaded, n: int) -> None:
        options, name = self.options, loaded.servable.name
        room = options.parallel + options.queue
        if loaded.in_flight + n <= room:
            return
        self.metrics.refused.labels(name).inc()
        wait = loaded.answer_s * max(1, loaded.in_flight + n - room) / options.parallel
        seconds = min(_LONGEST_RETRY_AFTER_S, max(1, math.ceil(wait)))
        raise ApiError(
            429,
            f"{loaded.in_flight} answers run or wait, and no more than {room} may; try again in about {seconds} s",
            kind="rate_limit_error",
            code="queue_full",
            headers={"Retry-After": str(seconds)},
        )

    async def _tool_form(self, ask: Ask, loaded: Loaded) -> ToolForm | None:
        if ask.tools is None:
            return None
        name = loaded.servable.name
        if not loaded.model.info.can_chat:
            raise ApiError(400, f"{name} has no chat template, so it knows no tools", param="tools")
        try:
            form = self._forms.get(loaded.model.template)
            if form is None:
                form = await asyncio.to_thread(tool_form, loaded.model.template)
        except NoToolFormError as error:
            message = f"the chat template of {name} knows no tools in a form that is known here: {error}"
            raise ApiError(400, message, param="tools") from error
        self._forms[loaded.model.template] = form
        await asyncio.to_thread(check_schemas, ask.tools, one_by_one=form.keyed is not None, model=name)
        if form.tag is None and not ask.tools.forced:
            message = f"{name} writes a call like any other text: only a tool_choice that demands one is possible"
            raise ApiError(400, message, param="tool_choice")
        return form

    def log(self, line: str) -> None:
        if self.options.log is not None:
            self.options.log(line)


Reader = Callable[[dict[str, Any]], Ask]


class AnswerEndpoint:
    """An endpoint whose answer comes from a model."""

    def __init__(self, service: Service, path: str, read: Reader) -> None:
        self._service, self._path, self._read = service, path, read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        started = time.perf_counter()
        try:
            status = await service.answer(await _understood(Request(scope, receive), self._heard), scope, receive, send)
        except ApiError as error:
            status = error.status
            await send_json(send, status, error.body, error.headers)
        service.metrics.responses.labels(self._path, str(status)).inc()
        service.log(f"POST {self._path} {status} {time.perf_counter() - started:.2f} s")

    def _heard(self, body: dict[str, Any]) -> Ask:
        if self._service.options.log_prompts:
            self._service.log(f"{self._path} {body}")
        return self._read(body)


class EmbeddingEndpoint:
    """`/v1/embeddings`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, path, started = self._service, "/v1/embeddings", time.perf_counter()
        status, headers = 200, {}
        try:
            ask = await _understood(Request(scope, receive), embedding_ask)
            async with service.pool.use(ask.model) as loaded, watched(receive) as gone:
                loaded.count(1)
                try:
                    body = await embed(ask, loaded, gone)
                finally:
                    loaded.count(-1)
        except ApiError as error:
            status, body, headers = error.status, error.body, error.headers
        if status != GONE:
            await send_json(send, status, body, headers)
        service.metrics.responses.labels(path, str(status)).inc()
        service.log(f"POST {path} {status} {time.perf_counter() - started:.2f} s")


async def _understood(request: Request, read: Callable[[dict[str, Any]], T]) -> T:
    """What is asked with a body. Raises `ApiError` 400 or 415."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, f"the content type is {kind[:100] or 'missing'}; it is application/json")
    data = await request.body()
    if len(data) <= _LARGE_BODY:
        return read(parse_object(data))
    return await asyncio.to_thread(lambda: read(parse_object(data)))


def make_app(service: Service) -> Guard:
    """The ASGI application."""
    app = Starlette(
        routes=_routes(service),
        exception_handlers={HTTPException: _http_error, ApiError: _api_error, Exception: _bug},
    )
    return Guard(app, service.options.rules)


def _routes(service: Service) -> list[Route]:
    def get(path: str, function: Callable[[Service, Request], Response]) -> Route:
        async def endpoint(request: Request) -> Response:
            return function(service, request)

        return Route(path, endpoint, methods=["GET"])

    def answer(path: str, read: Reader) -> Route:
        return Route(path, AnswerEndpoint(service, path, read), methods=["POST"])

    return [
        answer("/v1/chat/completions", chat_ask),
        answer("/v1/completions", completion_ask),
        Route("/v1/embeddings", EmbeddingEndpoint(service), methods=["POST"]),
        get("/v1/models", lambda service, _request: JSONResponse(models_report(service.pool, service.started))),
        get("/v1/models/{name:path}", _model),
        get("/v1/status", _status),
        get("/health", _health),
        get("/metrics", lambda service, _request: Response(service.metrics.text(), media_type=CONTENT_TYPE)),
        get("/openapi.json", lambda _service, _request: JSONResponse(description())),
    ]


def _model(service: Service, request: Request) -> Response:
    return JSONResponse(model_report(service.pool, request.path_params["name"], service.started))


def _status(service: Service, _request: Request) -> Response:
    """What `localrun ps` shows."""
    head = {"pid": os.getpid(), "version": __version__, "started": service.started, "serves": service.pool.names}
    return JSONResponse({**head, "parallel": service.options.parallel, "models": status_report(service.pool)})


def _health(service: Service, _request: Request) -> Response:
    status, body = health_report(service.pool)
    return JSONResponse(body, status)


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    api = ApiError(error.status_code, error.detail.lower(), headers=error.headers)
    return JSONResponse(api.body, api.status, headers=api.headers)


async def _api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, error.status, headers=error.headers)


async def _bug(_request: Request, error: Exception) -> Response:
    logger.error("a bug in the server", exc_info=error)
    return JSONResponse(ApiError(500, "a bug of the server", kind="server_error").body, 500)
