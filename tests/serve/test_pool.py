"""Models are loaded when somebody asks, and make room for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from localrun.errors import DoesNotFitError, ModelFileError
from tests.serve.conftest import Server, until
from tests.serve.test_under_load import ask, endless

Start = Callable[..., Server]
CHAT = "/v1/chat/completions"


def loaded(server: Server) -> list[str]:
    return [entry.servable.name for entry in server.running.service.pool.loaded]


def test_a_model_is_loaded_when_it_is_asked_for(server: Start) -> None:
    running = server(names=("a", "b"))
    assert loaded(running) == ["a"]
    assert running.post(CHAT, ask(model="b")).json()["model"] == "b"
    assert loaded(running) == ["a", "b"]


def test_the_least_recently_used_model_makes_room(server: Start) -> None:
    running = server(names=("a", "b", "c"), max_loaded=2)
    for name in ("a", "b", "a", "c"):
        assert running.post(CHAT, ask(model=name)).status_code == 200
    assert loaded(running) == ["a", "c"]
    assert running.models["b"].closed


def test_memory_decides_how_many_models_stay(server: Start) -> None:
    free = [10]
    running = server(names=("a", "b"), available=lambda: free[0])
    assert running.post(CHAT, ask(model="b")).status_code == 200
    assert loaded(running) == ["b"]
    free[0] = 1000
    assert running.post(CHAT, ask(model="a")).status_code == 200
    assert loaded(running) == ["b", "a"]


def test_a_model_in_use_is_waited_for(server: Start) -> None:
    running = server(endless, names=("a", "b"), max_loaded=1, model={"step_s": 0.001})
    first = threading.Thread(target=lambda: running.post(CHAT, ask(max_tokens=200)))
    first.start()
    until(lambda: bool(running.models["a"].running))
    assert running.post(CHAT, ask(model="b", max_tokens=3)).status_code == 200
    first.join(20)
    assert [answer.said for answer in running.models["a"].ended] == [200], "it was not cut short"


def test_a_model_that_cannot_be_loaded_is_an_error_for_those_who_ask(server: Start) -> None:
    from localrun.serve.servable import Servable

    running = server()
    pool = running.running.service.pool
    for name, error, status in (
        ("big", DoesNotFitError("it needs 900 GB"), 503),
        ("broken", ModelFileError("broken.gguf is cut short"), 500),
    ):

        def load(error: Exception = error) -> None:
            raise error

        pool._servables[name] = Servable(name, load, n_bytes=1)  # type: ignore[arg-type]
        answer = running.post(CHAT, ask(model=name))
        assert answer.status_code == status
        assert str(error) in answer.json()["error"]["message"]
    assert running.post(CHAT, ask()).status_code == 200


def test_many_who_ask_for_one_model_load_it_once(server: Start) -> None:
    running = server(names=("a", "b"))
    threads = [threading.Thread(target=lambda: running.post(CHAT, ask(model="b"))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert running.metric('localrun_model_loads_total{model="b"}') == 1


def test_models_that_take_turns_are_used_before_they_make_room(server: Start) -> None:
    running = server(lambda request: "done", names=("a", "b", "c"), max_loaded=1)
    answers: list[int] = []

    def alternate(first: int) -> None:
        names = ["abc"[(first + i) % 3] for i in range(4)]
        answers.extend(running.post(CHAT, ask(model=name)).status_code for name in names)

    threads = [threading.Thread(target=alternate, args=[i]) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == [200] * 24


def test_a_model_that_is_always_in_use_makes_room_in_the_end(server: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localrun.serve.pool._PATIENCE_S", 0.05)
    running = server(lambda request: "words " * 20, names=("a", "b"), max_loaded=1, model={"step_s": 0.001})
    over = threading.Event()
    answers: list[int] = []

    def busy() -> None:
        while not over.is_set():
            answers.append(running.post(CHAT, ask(model="a")).status_code)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: len(answers) > 3)
    try:
        assert running.post(CHAT, ask(model="b")).status_code == 200
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
    assert set(answers) == {200}, "those who had to wait were answered too"
