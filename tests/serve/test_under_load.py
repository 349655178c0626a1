"""Many clients, slow ones, and ones that go away."""

from __future__ import annotations

import asyncio
import json
import queue
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import httpx2
import pytest

from localrun.chat.messages import Message
from localrun.params import GenerationParams
from localrun.responder import Done, Request, Result
from localrun.serve.turn import Ended, Turn
from tests.serve.conftest import Server, until
from tests.serve.scripted_model import asked

Start = Callable[..., Server]
CHAT = "/v1/chat/completions"


def ask(text: str = "Hi", **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], **more}


def endless(_request: object) -> str:
    return "words and words " * 10_000


def open_request(server: Server, *, stream: bool) -> socket.socket:
    """A raw connection with a request on it."""
    client = socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])))
    body = json.dumps(ask(stream=stream)).encode()
    lines = [
        f"POST {CHAT} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    client.sendall("\r\n".join([*lines, "", ""]).encode() + body)
    return client


def open_stream(server: Server) -> socket.socket:
    return open_request(server, stream=True)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_sequence_within_one_step(server: Start, stream: bool) -> None:
    running = server(endless, model={"step_s": 0.001})
    client = open_request(running, stream=stream)
    until(lambda: bool(running.model.running and running.model.running[0].said > 3))
    [answer] = running.model.running
    running.model.hold.clear()
    client.close()
    until(lambda: answer.stopped)
    steps = running.model.steps
    running.model.hold.set()
    until(lambda: running.model.idle)
    line = f'localrun_responses_total{{endpoint="{CHAT}",status="499"}}'
    until(lambda: line in httpx2.get(f"{running.url}/metrics").text)
    assert running.model.steps - steps <= 2, "the step that was held, and the one that reads the flag"


def test_a_client_that_goes_away_while_it_waits_is_forgotten(server: Start) -> None:
    running = server(endless, model={"parallel": 1, "step_s": 0.001})
    first, second = open_stream(running), open_stream(running)
    until(lambda: len(running.model.waiting) == 1)
    second.close()
    until(lambda: not running.model.waiting)
    assert len(running.model.running) == 1
    first.close()
    until(lambda: running.model.idle)


def test_slow_readers_do_not_stall_others(server: Start) -> None:
    running = server(lambda r: endless(r) if asked(r) == "Hi" else "done", model={"parallel": 4})
    slow = [open_stream(running) for _ in range(2)]  # nobody reads these
    until(lambda: len(running.model.running) == 2)
    for _ in range(5):
        answer = running.post(CHAT, ask("other"))
        assert answer.json()["choices"][0]["message"]["content"] == "done"
    for client in slow:
        client.close()
    until(lambda: running.model.idle)


def test_a_client_that_stops_reading_holds_no_place_and_is_dropped_in_the_end(server: Start) -> None:
    running = server(lambda r: "words " * 8000, patience_s=1.0)
    client = open_stream(running)
    until(lambda: bool(running.model.ended), seconds=60)
    until(lambda: running.metric('localrun_answers_in_flight{model="tiny"}') == 0)
    [loaded] = running.running.service.pool.loaded
    until(lambda: loaded.users == 0)
    client.close()


def test_an_answer_that_is_cut_by_a_second_signal_is_an_error_and_no_end(server: Start) -> None:
    running = server(endless, model={"step_s": 0.001})
    answers: list[httpx2.Response] = []
    threads = [
        threading.Thread(target=lambda stream=stream: answers.append(running.post(CHAT, ask(stream=stream))))
        for stream in (True, False)
    ]
    for thread in threads:
        thread.start()
    until(lambda: len(running.model.running) == 2)
    began = running.model.steps
    until(lambda: running.model.steps > began + 200)  # the stream has long begun
    for answer in running.model.running:
        answer.stop()  # as closing the engine does
    for thread in threads:
        thread.join(20)
    streamed, whole = sorted(answers, key=lambda answer: answer.status_code)
    assert whole.status_code == 503
    assert "before the answer was complete" in whole.json()["error"]["message"]
    assert "before the answer was complete" in streamed.text.splitlines()[-2]
    assert "[DONE]" not in streamed.text
    assert running.metric('localrun_answers_total{finish="interrupted",model="tiny"}') == 2


def test_an_answer_that_takes_too_long_says_so(server: Start) -> None:
    running = server(lambda r: "slow", names=("tiny",))
    turn = Turn(request := Request(GenerationParams(), messages=(Message("user", "Hi"),)))
    told = list(turn.take(Done(replace(result_of(running, request), finish="timeout"))))
    assert isinstance(told[-1], Ended)
    assert told[-1].finish == "length"
    assert [w.code for w in told[-1].result.warnings] == ["timeout"]


def result_of(server: Server, request: Request) -> Result:
    sink: queue.SimpleQueue[tuple[object, object]] = queue.SimpleQueue()
    server.model.start(request, sink)
    while True:
        _, event = sink.get()
        if isinstance(event, Done):
            return event.result


def test_beyond_the_queue_comes_429_with_a_time_to_come_back(server: Start) -> None:
    running = server(endless, model={"parallel": 1, "step_s": 0.001}, parallel=1, queue=2)
    clients = [open_stream(running) for _ in range(3)]
    until(lambda: len(running.model.requests) == 3)
    refused = running.post(CHAT, ask())
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["error"]["code"] == "queue_full"
    assert running.metric('localrun_refused_total{model="tiny"}') == 1
    assert running.metric('localrun_answers_in_flight{model="tiny"}') == 3
    assert running.metric('localrun_queue{model="tiny"}') == 2
    for client in clients:
        client.close()
    until(lambda: running.metric('localrun_answers_in_flight{model="tiny"}') == 0)
    assert running.post(CHAT, ask(max_tokens=3)).status_code == 200


def test_stopping_finishes_what_runs_and_takes_nothing_new(server: Start) -> None:
    running = server(lambda r: "a rather long answer " * 5, model={"step_s": 0.003})
    answers: list[httpx2.Response] = []
    client = threading.Thread(target=lambda: answers.append(running.post(CHAT, ask())))
    client.start()
    until(lambda: bool(running.model.running))
    running.running.stop()
    client.join(20)
    assert answers[0].json()["choices"][0]["message"]["content"] == "a rather long answer " * 5
    until(lambda: running.model.closed)
    with pytest.raises(httpx2.TransportError):
        httpx2.get(f"{running.url}/health")


@pytest.mark.slow
def test_a_thousand_streams_of_which_a_fifth_is_cut_off(server: Start) -> None:
    running = server(
        lambda r: f"answer to {asked(r)}: " + asked(r) * 3, model={"parallel": 32}, parallel=32, queue=2000
    )
    chosen = random.Random(7)
    cut = {number: chosen.randint(0, 10) for number in chosen.sample(range(1000), 200)}
    threads = threading.active_count()

    async def one(client: httpx2.AsyncClient, number: int) -> str:
        text = ""
        body = ask(f"<{number}é🙂>", stream=True)
        async with client.stream("POST", running.url + CHAT, json=body) as response:
            assert response.status_code == 200
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                choices = json.loads(line[6:])["choices"]
                text += (choices[0]["delta"].get("content") or "") if choices else ""
                if len(text) >= cut.get(number, 1000):
                    return "cut"
        return text

    async def all_() -> list[str]:
        limits = httpx2.Limits(max_connections=1000, max_keepalive_connections=0)
        async with httpx2.AsyncClient(limits=limits, timeout=120) as client:
            return await asyncio.gather(*(one(client, i) for i in range(1000)))

    texts = asyncio.run(all_())
    for number, text in enumerate(texts):
        said = f"<{number}é🙂>"
        assert text == ("cut" if number in cut else f"answer to {said}: " + said * 3)
    until(lambda: running.model.idle)
    until(lambda: running.metric('localrun_answers_in_flight{model="tiny"}') == 0)
    assert len(running.model.ended) == 1000
    [loaded] = running.running.service.pool.loaded
    assert loaded.users == 0
    assert threading.active_count() <= threads + 8, "no thread is left behind"


def test_a_burst_of_streams_is_answered_in_full(server: Start) -> None:
    running = server(lambda r: f"to {asked(r)}", model={"parallel": 8}, parallel=8, queue=200)
    texts: dict[int, str] = {}

    def one(number: int) -> None:
        texts[number] = running.post(CHAT, ask(str(number))).json()["choices"][0]["message"]["content"]

    threads = [threading.Thread(target=one, args=[i]) for i in range(30)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert texts == {i: f"to {i}" for i in range(30)}, time.monotonic() - started
