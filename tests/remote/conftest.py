"""A responder for a scripted server, with what it answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from localrun.chat.messages import Message
from localrun.params import GenerationParams
from localrun.remote.responder import RemoteResponder
from localrun.remote.settings import engine_settings
from localrun.responder import Done, Event, Request, Result
from tests.remote.scripted_server import ScriptedServer, Step

Open = Callable[..., tuple[ScriptedServer, RemoteResponder]]


@pytest.fixture
def remote() -> Iterator[Open]:
    """`remote(script, …, owner=…, settings={…})`: a server that plays the scripts, and a responder that asks it."""
    with ExitStack() as stack:

        def open_(
            *scripts: list[Step], settings: dict[str, Any] | None = None, model: str | None = None, **server: Any
        ) -> tuple[ScriptedServer, RemoteResponder]:
            running = stack.enter_context(ScriptedServer(list(scripts) or [[]], **server))
            given = replace(engine_settings(running.url), **(settings or {}))
            responder = RemoteResponder(given, model, jitter=lambda: -1.0)  # a pause of no length
            stack.callback(responder.close)
            return running, responder

        yield open_


def ask(responder: RemoteResponder, text: str = "Hi", **params: Any) -> Result:
    """The result of one question."""
    last = events(responder, text, **params)[-1]
    assert isinstance(last, Done)
    return last.result


def events(responder: RemoteResponder, text: str = "Hi", **params: Any) -> list[Event]:
    return list(responder.respond(request(text, **params)))


def request(text: str = "Hi", **params: Any) -> Request:
    return Request(GenerationParams(**params), messages=(Message("user", text),))
