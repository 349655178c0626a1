"""The chat line by line: pipes, commands, Ctrl-C, and the choice of screen."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localrun.chat.conversation import ChatSettings, Conversation
from localrun.cli.chat import changed, full_screen_is_possible, last_model
from localrun.cli.plain_chat import PlainChat, Streams
from localrun.errors import ContextOverflowError, EngineError, UsageError
from localrun.params import GenerationParams, SamplingParams
from localrun.store import Store
from tests.tui.scripted import ScriptedResponder


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "sessions.db")
    yield opened
    opened.close()


class Terminal(io.StringIO):
    """Text that claims to come from (or go to) a person."""

    def isatty(self) -> bool:
        return True


def chat(
    store: Store, model: ScriptedResponder, typed: str, *, person: bool = False, stats: bool = False
) -> tuple[PlainChat, str, str]:
    kind = Terminal if person else io.StringIO
    streams = Streams(kind(typed), kind(), io.StringIO())
    plain = PlainChat(
        Conversation(store, model, ChatSettings()),
        streams,
        open_model=lambda name: ScriptedResponder(f"I am {name}.", name=name),
        stats=stats,
    )
    plain.run()
    return plain, streams.stdout.getvalue(), streams.stderr.getvalue()  # type: ignore[attr-defined]


def test_a_pipe_gets_the_answers_and_nothing_else(store: Store) -> None:
    _, out, err = chat(store, ScriptedResponder("Blue.", "Green.\n"), "sky?\ngrass?\n")
    assert out == "Blue.\nGreen.\n"
    assert err == ""


def test_the_text_of_a_pipe_is_not_changed(store: Store) -> None:
    _, out, _ = chat(store, ScriptedResponder("\x1b[31mred\x1b[0m\x07"), "x\n")
    assert out == "\x1b[31mred\x1b[0m\x07\n"


def test_a_person_never_gets_a_control_character_of_the_model(store: Store) -> None:
    _, out, err = chat(store, ScriptedResponder("\x1b]0;title\x07 a\r\x9b31m"), "x\n", person=True)
    assert "\x1b" not in out + err
    assert "\x07" not in out + err
    assert "\x9b" not in out + err
    assert "␛]0;title␇" in out


def test_a_message_of_several_lines_stands_between_three_quotes(store: Store) -> None:
    model = ScriptedResponder("ok")
    chat(store, model, '"""first\n\nsecond"""\n"""\na\n"""\n')
    assert [request.messages[-1].content for request in model.requests] == ["first\n\nsecond", "a"]


def test_a_message_without_its_end_is_an_error_and_is_not_sent(store: Store) -> None:
    model = ScriptedResponder("ok")
    with pytest.raises(UsageError, match="has no end"):
        chat(store, model, '"""first\n')
    assert model.requests == []


@pytest.mark.parametrize("typed", ["", "\n\n  \n"])
def test_an_empty_input_ends_quietly_and_leaves_no_session(store: Store, typed: str) -> None:
    _, out, err = chat(store, ScriptedResponder(), typed)
    assert (out, err, store.sessions()) == ("", "", [])


def test_an_error_ends_a_pipe_but_not_a_dialogue(store: Store) -> None:
    with pytest.raises(EngineError):
        chat(store, ScriptedResponder(EngineError("boom"), "fine"), "a\nb\n")
    _, out, err = chat(store, ScriptedResponder(EngineError("boom", hint="try"), "fine"), "a\nb\n", person=True)
    assert "error: boom\nhint: try\n" in err
    assert "fine" in out


def test_commands_change_the_next_answer(store: Store) -> None:
    model = ScriptedResponder("ok")
    plain, _, err = chat(store, model, "/temp 0\n/system Be kind.\nhello\n/system -\nagain\n", person=True)
    assert model.requests[0].params.sampling.temperature == 0
    assert model.requests[0].messages[0].content == "Be kind."
    assert model.requests[1].messages[0].role == "user"
    assert plain.conversation.settings.params.sampling.temperature == 0
    assert "temperature 0" in err


def test_regenerate_edit_and_continue_work_on_the_last_exchange(store: Store) -> None:
    plain, out, _ = chat(store, ScriptedResponder("A", "B", "C", " D"), "q\n/regenerate\n/edit q2\n/continue\n")
    assert out == "A\nB\nC\n D\n"
    assert [node.text for node in plain.conversation.path] == ["q2", "C D"]
    assert len(plain.conversation.tree.children(None)) == 2


def test_a_file_goes_along_with_the_next_message(store: Store, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("the notes")
    model = ScriptedResponder("ok")
    chat(store, model, f"/file {tmp_path}/notes.txt\nsummarize\nand?\n")
    assert model.requests[0].messages[0].content == "notes.txt:\n```\nthe notes\n```\n\nsummarize"
    assert model.requests[1].messages[-1].content == "and?"


@pytest.mark.parametrize("content", [b"\xff\xfe\xfd", b"caf\xe9", b"a\0b"])
def test_a_file_that_is_no_text_is_refused_by_name(store: Store, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.bin").write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.bin"):
        chat(store, ScriptedResponder(), f"/file {tmp_path}/x.bin\n")


def test_an_unknown_command_names_the_nearest_one_and_a_path_needs_two_slashes(store: Store) -> None:
    model = ScriptedResponder("ok")
    _, _, err = chat(store, model, "/regenrate\n/etc/passwd is what?\n//help me\n", person=True)
    assert "did you mean /regenerate?" in err
    assert "there is no command /etc/passwd" in err
    assert [request.messages[-1].content for request in model.requests] == ["/help me"]


def test_every_command_of_the_help_works_or_says_why_not(store: Store) -> None:
    _, _, err = chat(store, ScriptedResponder(), "/help\n/theme\n/quit\nnever\n", person=True)
    assert "/export [FILE]" in err
    assert "needs the full screen" in err


def test_export_never_overwrites(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "out.md"
    _, _, err = chat(store, ScriptedResponder("yes"), f"q\n/export {target}\n/export {target}\n", person=True)
    assert "out.md exists" in err
    assert "yes" in target.read_text()


def test_another_model_takes_over(store: Store) -> None:
    first = ScriptedResponder("I am first.")
    plain, out, _ = chat(store, first, "who?\n/model second\nwho?\n")
    assert out == "I am first.\nI am second.\n"
    assert first.closed
    assert last_model(plain.conversation) == "second"


def test_the_cost_is_told_in_the_words_of_the_status_line(store: Store) -> None:
    _, _, err = chat(store, ScriptedResponder("a b", "c"), "one two\nthree\n", stats=True)
    assert err.splitlines()[1] == "reused 3 of 8 tokens · 42.0 tokens/s · TTFT 0.21 s"


def test_a_full_context_is_a_choice_for_a_person_and_an_error_for_a_pipe(store: Store) -> None:
    typed = "word " * 30 + "\n" + "more " * 30 + "\n"
    with pytest.raises(ContextOverflowError):
        chat(store, ScriptedResponder("ok", context_limit=80), typed)
    model = ScriptedResponder("ok", context_limit=80)
    plain, out, err = chat(store, model, typed + "s\n", person=True)
    assert "[c]ompact" in err
    assert "earlier messages are left out" in err
    assert out.count("ok") == 2
    assert [node.kind for node in plain.conversation.path][-2:] == ["shift", "assistant"]


def test_flags_change_what_they_name_and_nothing_else() -> None:
    sampling = SamplingParams(temperature=0.1, top_k=7, seed=3)
    settings = ChatSettings("old", GenerationParams(sampling, max_tokens=9))
    assert changed(settings, {"system": None, "temperature": None, "stop": []}) == settings
    again = changed(settings, {"temperature": "0.8", "mirostat": "2,4,0.2", "system": "new"})
    assert again.system == "new"
    assert again.params.max_tokens == 9
    assert again.params.sampling == SamplingParams(0.8, 7, seed=3, mirostat=2, mirostat_tau=4, mirostat_eta=0.2)
    assert changed(settings, {"max_tokens": "5"}).params.max_tokens == 5
    with pytest.raises(UsageError, match="temperature"):
        changed(settings, {"temperature": "-1"})
    with pytest.raises(UsageError, match="on-full"):
        changed(settings, {"on_full": "forget"})


def test_without_a_terminal_the_screen_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not full_screen_is_possible()
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    assert full_screen_is_possible()
    monkeypatch.setenv("TERM", "dumb")
    assert not full_screen_is_possible()


PROGRAM = """
import sys, threading
from pathlib import Path
from localrun.cli.chat import talk_plainly
from localrun.chat.conversation import ChatSettings, Conversation
from localrun.store import Store
from tests.tui.scripted import ScriptedResponder

store = Store.open(Path(sys.argv[1]))
model = ScriptedResponder("one two three four")
model.hold = threading.Event()
try:
    talk_plainly(Conversation(store, None, ChatSettings()), None, lambda name: model)
except KeyboardInterrupt:
    sys.exit(130)
"""


class Dialogue:
    """A program on a pseudo-terminal."""

    def __init__(self, path: Path) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "PYTHONPATH": os.getcwd(), "TERM": "dumb"},
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def expect(self, text: str) -> None:
        deadline = time.monotonic() + 20
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], 0.2)
            if ready:
                self.seen += os.read(self.master, 4096).decode()
            assert time.monotonic() < deadline, f"{text!r} did not come; seen: {self.seen!r}"
        self.seen = self.seen[self.seen.index(text) + len(text) :]

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def interrupt(self) -> None:
        time.sleep(0.3)  # no person is faster; before that, readline may not be waiting yet and miss the signal
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        code = self.process.wait(20)
        os.close(self.master)
        return code


def test_ctrl_c_stops_the_answer_and_keeps_it_and_twice_leaves(tmp_path: Path) -> None:
    dialogue = Dialogue(tmp_path / "s.db")
    dialogue.expect("> ")
    dialogue.type("count\n")
    dialogue.expect("one ")
    dialogue.interrupt()
    dialogue.expect("(stopped; /continue goes on)")
    dialogue.expect("> ")
    time.sleep(2.1)  # longer than the time in which a second Ctrl-C leaves
    dialogue.interrupt()
    dialogue.expect("press Ctrl-C again")
    dialogue.expect("> ")
    dialogue.interrupt()
    assert dialogue.end() == 130
    store = Store.open(tmp_path / "s.db")
    path = store.tree(store.resolve("last").id).head_path
    assert [(node.text, node.finish) for node in path] == [("count", "given"), ("one ", "interrupted")]
    store.close()


def test_a_line_between_two_ctrl_c_means_that_nobody_leaves(tmp_path: Path) -> None:
    dialogue = Dialogue(tmp_path / "s.db")
    dialogue.expect("> ")
    dialogue.interrupt()
    dialogue.expect("press Ctrl-C again")
    dialogue.expect("> ")
    dialogue.type('"""first line\n')
    dialogue.expect(". ")
    dialogue.interrupt()
    dialogue.expect("press Ctrl-C again")
    dialogue.expect("> ")
    dialogue.interrupt()
    assert dialogue.end() == 130


REAL = """
import typer
from localrun.cli.chat import chat
app = typer.Typer()
app.command()(chat)
app()
"""


@pytest.mark.model
def test_the_real_model_answers_in_a_pipe_and_goes_on_with_its_session(smollm2: Path) -> None:
    def run(*flags: str, typed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", REAL, str(smollm2), "--temperature", "0", "--ctx", "1024", *flags],
            input=typed,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"},
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert run(typed="What is the capital of France? Answer in one sentence.\n") == "The capital of France is Paris.\n"
    run("--continue", "-n", "8", typed="And of Italy?\n")
    store = Store.open()
    (session,) = store.sessions()
    assert [node.kind for node in store.tree(session.id).head_path] == ["user", "assistant"] * 2
    store.close()
