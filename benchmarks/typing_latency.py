"""How long a key press takes to reach the screen while a model is writing.

Sends key events to the application and takes the time until the frame that shows the letter is handed to the terminal
(Pilot's own `press` also waits for every widget to be idle, which no user does): in an empty chat, with 20,000 tokens
open, idle and while an answer streams in, with every core busy if asked. Printed side by side from one run: on the
clock, and as the processor time that the screen's own thread used meanwhile (what it would take on a free machine).
By default a scripted model writes at a steady rate; with --model a real one decodes, with all its threads.

    python benchmarks/typing_latency.py [--keys 200] [--busy-cores 2] [--tokens 20000] [--pieces-per-s 60]
    python benchmarks/typing_latency.py --model smollm2:135m
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from textual.events import Key
from textual.screen import Screen

from localrun.chat.conversation import ChatSettings, Conversation
from localrun.chat.messages import Message
from localrun.local import open_responder
from localrun.responder import (
    Done,
    Event,
    ModelIdentity,
    ModelInfo,
    PrefillProgress,
    Request,
    Responder,
    Result,
    TextPiece,
    Timings,
    Usage,
)
from localrun.store import Store
from localrun.tui.app import ChatApp
from localrun.tui.collector import calm
from localrun.tui.ports import ModelChoice
from localrun.tui.widgets.message import AnswerView
from localrun.turns import short_turns

PARAGRAPH = (
    "The tide rises because the moon pulls the water towards it, and falls because the earth turns away below.\n\n"
    "- spring tide: **sun and moon** in one line\n- neap tide: at right angles\n\n"
    "```python\ndef tide(t: float) -> float:\n    return cos(t) + 0.46 * cos(2 * t)\n```\n\n"
)  # about 100 tokens


class Writer:
    """A model that writes at a steady rate until it is stopped."""

    def __init__(self, pieces_per_s: float) -> None:
        self._gap_s = 1 / pieces_per_s
        self._stop = threading.Event()
        self._identity = ModelIdentity("writer")

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(self._identity, 1_000_000, can_chat=True, can_think=False)

    def count_tokens(self, request: Request) -> int:
        return sum(len(message.content) // 4 for message in request.messages)

    def respond(self, request: Request) -> Iterator[Event]:
        self._stop.clear()
        total = self.count_tokens(request)
        yield PrefillProgress(total, total, 0)
        text = ""
        while not self._stop.wait(self._gap_s):
            piece = PARAGRAPH[len(text) % len(PARAGRAPH) :][:4]
            text += piece
            yield TextPiece(piece)
        yield Done(Result(text, "", "interrupted", None, 0, self._identity, Usage(total), Timings()))

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        self._stop.set()


class Decoding:
    """A real model that writes without end, whatever was asked: the open chat may be longer than its context."""

    ASKED = "Write a very long travel guide to Italy, with headings, lists and paragraphs."

    def __init__(self, model: Responder) -> None:
        self._model = model
        self._stopped = threading.Event()

    @property
    def info(self) -> ModelInfo:
        return replace(self._model.info, context_limit=1_000_000)

    def count_tokens(self, request: Request) -> int:
        return sum(len(message.content) // 4 for message in request.messages)

    def respond(self, request: Request) -> Iterator[Event]:
        self._stopped.clear()
        params = replace(request.params, max_tokens=1000)
        while True:
            for event in self._model.respond(Request(params, (Message("user", self.ASKED),))):
                if not isinstance(event, Done) or self._stopped.is_set():
                    yield event
            if self._stopped.is_set():
                return

    def stop(self) -> None:
        self._stopped.set()
        self._model.stop()

    def close(self) -> None:
        """The application closes its model; this one goes on in the next measurement."""


class TimedApp(ChatApp):
    """Notes when a frame is drawn that shows what was typed."""

    awaited = 0
    drawn: asyncio.Event

    def _display(self, screen: Screen[object], renderable: object) -> None:
        super()._display(screen, renderable)
        if len(self.chat.prompt.text) >= self.awaited and hasattr(self, "drawn"):
            self.drawn.set()

    async def press_and_wait(self, key: str, n_typed: int) -> tuple[float, float]:
        """Milliseconds from the key event to the frame that shows it, on the clock and of the screen's own work."""
        self.drawn = asyncio.Event()
        self.awaited = n_typed
        before, worked = time.perf_counter(), time.thread_time()
        self.post_message(Key(key, " " if key == "space" else key))
        await self.drawn.wait()
        return (time.perf_counter() - before) * 1000, (time.thread_time() - worked) * 1000


class OneModel:
    """A shelf with one model on it."""

    def choices(self) -> list[ModelChoice]:
        return [ModelChoice("writer", None, True, is_default=True)]

    def has(self, name: str) -> bool:
        return True

    def fetch(self, name: str, progress: object, cancelled: object) -> None:
        raise AssertionError(f"{name} is here; nothing has to be fetched")


def burn() -> None:
    """Keep one core busy."""
    while True:
        sum(range(10_000))


def session_of(store: Store, n_tokens: int) -> str:
    """A conversation of about that many tokens."""
    session = store.create_session({})
    parent: int | None = None
    for turn in range(max(1, n_tokens // 500)):
        parent = store.add(session.id, parent, "user", f"Question {turn}?")
        parent = store.add(session.id, parent, "assistant", PARAGRAPH * 5)
    return session.id


async def measure(
    folder: Path, *, n_tokens: int, n_keys: int, writer: Responder, writing: bool
) -> list[tuple[float, float]]:
    """Milliseconds from each key press until the screen has taken it."""
    store = Store.open(folder / f"{n_tokens}-{writing}.db")
    conversation = Conversation(store, writer, ChatSettings())
    if n_tokens:
        conversation = Conversation.open(store, writer, session_of(store, n_tokens))
    app = TimedApp(conversation, model=None, open_model=lambda _: writer, models=OneModel(), cwd=folder)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(1)
        if writing:
            await pilot.press(*"Go", "enter")
            while not any(isinstance(view, AnswerView) and view.text for view in app.chat.transcript.views[-1:]):
                await pilot.pause(0.1)
            await pilot.pause(2)
        took = []
        for number in range(n_keys):
            key = "space" if number % 9 == 8 else "abcdefgh"[number % 9]
            took.append(await app.press_and_wait(key, number + 1))
            await asyncio.sleep(0.02)  # 50 keys a second: faster than anyone types
        assert len(app.chat.prompt.text) == n_keys
        writer.stop()
        while app.chat.is_busy:
            await pilot.pause(0.02)
    store.close()
    return took


def report(name: str, took: list[tuple[float, float]]) -> None:
    for what, values in zip(("clock", "work"), zip(*took, strict=True), strict=True):
        ordered = sorted(values)
        p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        over = sum(value > 50 for value in ordered)
        median = statistics.median(ordered)
        print(f"{name:36}{what:6} median {median:6.1f} ms   p99 {p99:6.1f} ms   over 50 ms: {over} of {len(ordered)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--busy-cores", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--pieces-per-s", type=float, default=60)
    parser.add_argument("--model", help="a real model instead of the scripted one")
    arguments = parser.parse_args()
    burners = [multiprocessing.Process(target=burn, daemon=True) for _ in range(arguments.busy_cores)]
    for burner in burners:
        burner.start()
    model = open_responder(arguments.model) if arguments.model else None
    writer = Writer(arguments.pieces_per_s) if model is None else Decoding(model)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, n_tokens, writing in (
            ("empty chat, idle", 0, False),
            (f"{arguments.tokens:,} tokens open, idle", arguments.tokens, False),
            ("empty chat, answer streaming", 0, True),
            (f"{arguments.tokens:,} tokens, answer streaming", arguments.tokens, True),
        ):
            with calm(), short_turns():  # as the command does
                took = asyncio.run(
                    measure(folder, n_tokens=n_tokens, n_keys=arguments.keys, writer=writer, writing=writing)
                )
            report(title, took)
    if model is not None:
        model.close()
    for burner in burners:
        burner.terminate()


if __name__ == "__main__":
    main()
