"""An engine that has failed is told to those it fails, and replaced for everybody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai
import pytest

from localrun.cli import main
from localrun.errors import DoesNotFitError
from localrun.serve.app import ServeOptions
from localrun.serve.servable import Servable
from tests.serve.conftest import Server, running_server, until
from tests.serve.scripted_model import ScriptedModel
from tests.serve.test_under_load import ask, endless

Start = Callable[..., Server]
CHAT = "/v1/chat/completions"


@dataclass
class Loads:
    """Loads that a test lets through one by one, or refuses."""

    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(1))
    refused: bool = False
    models: list[ScriptedModel] = field(default_factory=list)

    def load(self) -> ScriptedModel:
        self.gate.acquire()
        if self.refused:
            raise DoesNotFitError("it needs 900 GB", hint="take a smaller --ctx")
        self.models.append(ScriptedModel(lambda request: "fine"))
        return self.models[-1]


@contextmanager
def gated_server(*others: str) -> Iterator[tuple[Server, Loads]]:
    loads = Loads()
    servables = [Servable("tiny", loads.load), *(Servable(name, ScriptedModel) for name in others)]
    with running_server(servables, ServeOptions()) as running, Server(running, {}) as server:
        try:
            yield server, loads
        finally:
            loads.gate.release(100)


def get(server: Server, path: str) -> Any:
    return httpx2.get(server.url + path, timeout=30).json()


def states(server: Server) -> dict[str, str]:
    return {model["id"]: model["state"] for model in get(server, "/v1/models")["data"]}


@pytest.mark.parametrize("stream", [True, False])
def test_whoever_meets_the_failure_is_told_and_the_next_one_is_answered(server: Start, stream: bool) -> None:
    running = server(endless, model={"step_s": 0.001})
    dead = running.model
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(running.post, CHAT, ask(stream=stream))
        until(lambda: bool(dead.running and dead.running[0].said > 3))
        dead.fail()
        answer = asked.result(20)
    assert answer.status_code == (200 if stream else 500)
    for told in ("engine_failed", "because of a bug: KeyError", "send the request once more"):
        assert told in answer.text
    assert "[DONE]" not in answer.text
    assert running.post(CHAT, ask(max_tokens=3)).status_code == 200
    assert running.model is not dead
    assert dead.closed, "its memory is given back"
    assert running.metric('localrun_model_loads_total{model="tiny"}') == 2
    assert running.metric('localrun_engine_failures_total{model="tiny"}') == 1


def test_an_engine_that_fails_while_nobody_asks_is_noticed_and_replaced(server: Start) -> None:
    running = server()
    running.model.fail()
    assert running.post(CHAT, ask()).status_code == 200
    dead = running.model
    dead.fail()
    httpx2.get(f"{running.url}/health")
    until(lambda: running.model is not dead)
    until(lambda: get(running, "/health") == {"status": "ok"})
    assert running.metric('localrun_model_loads_total{model="tiny"}') == 3


def test_a_stream_that_others_read_ends_when_the_engine_fails(server: Start) -> None:
    running = server(endless, model={"step_s": 0.001})
    dead = running.model
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(running.post, CHAT, ask(stream=True)) for _ in range(6)]
        until(lambda: len(dead.running) + len(dead.waiting) == 6)
        dead.fail()
        texts = [answer.result(20).text for answer in asked]
    assert all("engine_failed" in text for text in texts)
    until(lambda: running.metric('localrun_answers_in_flight{model="tiny"}') == 0)


def test_health_sends_work_elsewhere_until_the_only_model_is_back() -> None:
    with gated_server() as (server, loads):
        assert get(server, "/health") == {"status": "ok"}
        loads.models[0].fail()
        answer = httpx2.get(f"{server.url}/health")
        assert answer.status_code == 503
        assert answer.json()["status"] == "loading"
        assert answer.json()["error"]["type"] == "unavailable_error"
        assert "tiny" not in answer.text, "who has no key learns no name"
        assert states(server) == {"tiny": "loading"}
        [told] = get(server, "/v1/status")["models"]
        assert (told["state"], told["in_flight"]) == ("loading", 0)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(server.post, CHAT, ask())
            loads.gate.release()
            assert waiting.result(20).status_code == 200
        assert httpx2.get(f"{server.url}/health").status_code == 200
        assert states(server) == {"tiny": "loaded"}


def test_a_model_that_cannot_be_loaded_again_is_tried_until_it_can() -> None:
    with gated_server() as (server, loads):
        loads.refused = True
        loads.gate.release(2)
        loads.models[0].fail()
        answer = server.post(CHAT, ask())
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == "it needs 900 GB"
        until(lambda: states(server) == {"tiny": "failed"})
        assert get(server, "/health")["status"] == "failed"
        assert get(server, "/v1/models/tiny")["problem"] == "it needs 900 GB"
        loads.refused = False
        loads.gate.release(10)
        until(lambda: get(server, "/health") == {"status": "ok"})
        assert len(loads.models) == 2
        assert "problem" not in get(server, "/v1/models/tiny")


def test_one_failed_model_of_several_is_no_reason_to_go_elsewhere() -> None:
    with gated_server("other") as (server, loads):
        assert server.post(CHAT, ask(model="other")).status_code == 200
        loads.models[0].fail()
        answer = httpx2.get(f"{server.url}/health")
        assert (answer.status_code, answer.json()) == (200, {"status": "degraded"})
        assert states(server) == {"tiny": "loading", "other": "loaded"}
        assert server.post(CHAT, ask(model="other")).status_code == 200


def test_ps_shows_a_model_that_is_loaded_again(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from localrun.remote.neighbours import Announcement

    with gated_server() as (server, loads):
        here = Announcement(1, server.url, None, 0.0)
        monkeypatch.setattr("localrun.remote.neighbours.running_servers", lambda: [here])
        for state in ("loaded", "loading"):
            assert main.run(["ps"]) == 0
            head, row = capfd.readouterr().out.splitlines()
            at = head.index("STATE")
            assert row[at:].split()[0] == state
            loads.models[0].fail()


@pytest.mark.model
def test_the_real_engine_is_replaced_after_a_bug_in_it(real_server: Server) -> None:
    from tests.serve.test_real_model import ask as ask_real
    from tests.serve.test_real_model import responder

    dead = responder(real_server)
    assert dead._context is not None

    def broken(_spans: object) -> None:
        raise KeyError("broken")

    dead._context.decode = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(openai.InternalServerError, match="because of a bug: KeyError: 'broken'") as caught:
        ask_real(real_server, "Hi", max_tokens=3)
    assert caught.value.code == "engine_failed"
    assert ask_real(real_server, "Hi", max_tokens=3).usage.completion_tokens == 3
    assert responder(real_server) is not dead
    assert get(real_server, "/health") == {"status": "ok"}
