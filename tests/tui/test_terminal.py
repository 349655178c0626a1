"""The real terminal: start, ask, stop, continue, leave, resume; and once on the real model."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localrun.store import CRASHED, Store
from tests.tui.program import WORDS
from tests.tui.terminal import Terminal

pytestmark = pytest.mark.slow

Start = Callable[..., Terminal]


@pytest.fixture
def start() -> Iterator[Start]:
    terminals: list[Terminal] = []

    def starter(*command: str, **environment: str) -> Terminal:
        terminals.append(Terminal([sys.executable, *command], **environment))
        return terminals[-1]

    yield starter
    for terminal in terminals:
        terminal.close()


def test_start_ask_stop_continue_leave_and_resume(tmp_path: Path, start: Start) -> None:
    database = str(tmp_path / "s.db")
    terminal = start("-m", "tests.tui.program", database)
    terminal.expect("counting:1b")
    terminal.keys("Count to twenty\rdraft")  # in one burst: Enter must not overtake the letters
    terminal.expect("n3")
    terminal.expect("draft")
    terminal.keys("\x1b")
    terminal.expect("stopped")
    assert "n20" not in terminal.text
    terminal.keys("\x07")  # Ctrl+G
    terminal.expect("n20")
    terminal.expect("42.0 tokens/s")  # stands there once the answer has ended
    terminal.keys("\x03")
    terminal.expect("Press Ctrl+C again")
    terminal.keys("\x03")
    assert terminal.end() == 0
    assert terminal.is_restored

    store = Store.open(Path(database))
    assert [node.text for node in store.tree(store.resolve("last").id).head_path] == [
        "Count to twenty",
        "".join(WORDS),
    ]
    store.close()
    again = start("-m", "tests.tui.program", database, "last")
    again.expect("n20")
    again.expect("Count to twenty")
    again.keys("\x11")  # Ctrl+Q
    assert again.end() == 0
    assert again.is_restored


def test_a_killed_chat_is_found_again_with_what_was_said(tmp_path: Path, start: Start) -> None:
    database = str(tmp_path / "s.db")
    terminal = start("-m", "tests.tui.program", database)
    terminal.expect("counting:1b")
    terminal.keys("Count\r")
    terminal.expect("n17")  # the first words are more than half a second old now
    terminal.process.send_signal(signal.SIGKILL)
    terminal.process.wait()
    store = Store.open(Path(database))
    answer = store.tree(store.resolve("last").id).head_path[-1]
    assert answer.finish == CRASHED
    assert answer.text.startswith("n1 n2 n3 ")
    store.close()


REAL = """
import typer
from localrun.cli.chat import chat
app = typer.Typer()
app.command()(chat)
app()
"""


@pytest.mark.model
def test_the_real_model_answers_and_a_branch_reuses_its_prefix(smollm2: Path, start: Start) -> None:
    terminal = start("-c", REAL, str(smollm2), "--temperature", "0", "--ctx", "1024", OMP_NUM_THREADS="1")
    terminal.expect("SmolLM2")
    terminal.keys("What is the capital of France? Answer in one sentence.\r")
    terminal.expect("Paris")
    terminal.expect("reused 0 of")
    terminal.keys("\x12")  # Ctrl+R
    terminal.expect("2/2")
    terminal.expect("reused")
    assert "reused 0 of" not in terminal.text
    terminal.keys("\x11")
    assert terminal.end() == 0
    assert terminal.is_restored
