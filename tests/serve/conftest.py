"""A running server on loopback, with scripted models or the real small one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from localrun.serve.app import ServeOptions
from localrun.serve.guard import Rules
from localrun.serve.servable import Servable
from localrun.serve.server import Address, Running, serve
from tests.serve.scripted_model import Script, ScriptedModel, echo


class Server:
    """What a test needs of a running server."""

    def __init__(self, running: Running, models: dict[str, ScriptedModel]) -> None:
        self.running = running
        self.url = running.url
        self.models = models
        self._clients: list[openai.OpenAI] = []

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()

    @property
    def model(self) -> ScriptedModel:
        """The first scripted model, once it is loaded."""
        return next(iter(self.models.values()))

    def client(self, key: str = "none") -> openai.OpenAI:
        self._clients.append(openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0))
        return self._clients[-1]

    def post(self, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return httpx2.post(self.url + path, json=body, timeout=30, **more)

    def metric(self, line: str) -> float:
        """The value of one line of /metrics."""
        for text in httpx2.get(f"{self.url}/metrics").text.splitlines():
            if text.startswith(line + " "):
                return float(text.rsplit(" ", 1)[1])
        raise AssertionError(f"no metric {line}")


@contextmanager
def running_server(
    servables: list[Servable], options: ServeOptions, *, available: Callable[[], int] = lambda: 1 << 40
) -> Iterator[Running]:
    """A server in a thread. It must end by itself, gracefully, when the test has ended."""
    ready, failures = threading.Event(), []
    found: list[Running] = []

    def on_ready(running: Running) -> None:
        found.append(running)
        ready.set()

    def run() -> None:
        try:
            serve(servables, options, Address(port=0, announce=False), available=available, on_ready=on_ready)
        except BaseException as error:  # shown by the test's own thread
            failures.append(error)
        ready.set()

    thread = threading.Thread(target=run, name="server")
    thread.start()
    ready.wait(60)
    if failures:
        raise failures[0]
    try:
        yield found[0]
    finally:
        found[0].stop()
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"
        assert not failures, failures


@pytest.fixture(scope="session")
def steady_server() -> Iterator[Server]:
    """One server for all tests that leave nothing behind."""
    model = ScriptedModel()
    servables = [Servable("tiny", lambda: model)]
    with running_server(servables, ServeOptions()) as running, Server(running, {"tiny": model}) as server:
        yield server


@pytest.fixture
def server() -> Iterator[Callable[..., Server]]:
    """`server(script, key=…, queue=…, …)`: a server with one scripted model called `tiny`."""
    with ExitStack() as stack:

        def start(
            script: Script = echo,
            *,
            names: tuple[str, ...] = ("tiny",),
            rules: Rules | None = None,
            available: Callable[[], int] = lambda: 1 << 40,
            model: dict[str, Any] | None = None,
            **options: Any,
        ) -> Server:
            models: dict[str, ScriptedModel] = {}

            def loader(name: str) -> Callable[[], ScriptedModel]:
                def load() -> ScriptedModel:
                    models[name] = ScriptedModel(script, name=name, **(model or {}))
                    return models[name]

                return load

            servables = [Servable(name, loader(name), n_bytes=100) for name in names]
            given = ServeOptions(rules=rules or Rules(), **options)
            running = stack.enter_context(running_server(servables, given, available=available))
            return stack.enter_context(Server(running, models))

        yield start


@pytest.fixture(scope="session")
def real_server(smollm2: Path) -> Iterator[Server]:
    """The real small model, four answers at once."""
    from localrun.catalog import ModelFile
    from localrun.hardware.memory import available_memory
    from localrun.params import EngineParams
    from localrun.serve.local_models import servable

    params = EngineParams(n_ctx=1024, n_parallel=4, threads=1, cache=False)
    file = ModelFile(smollm2, "smollm2", "file")
    running = running_server([servable(file, params)], ServeOptions(), available=available_memory)
    with running as found, Server(found, {}) as server:
        yield server


class Held:
    """A function that begins its work when a test lets it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.begun.set()
        assert self.go_on.wait(30), "nobody let it go on"
        return self._function(*given, **named)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Whatever becomes of the test, nothing is held in the end."""
        try:
            yield
        finally:
            self.go_on.set()


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something that other threads do."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)
