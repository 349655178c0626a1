"""A long prompt and a long batch tell how far they are, on a terminal, and leave nothing behind."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest

from localrun.batch import Row, Summary
from localrun.cli.batch_told import BatchTold, count_rows
from localrun.cli.live_line import LiveLine, ReadingLine, duration
from localrun.errors import InputError
from localrun.responder import PrefillProgress, TextPiece, Warning_, WarningRaised
from tests.cli.streams import Clock, Tty


@pytest.fixture(autouse=True)
def _a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def reading(stream: io.StringIO, clock: Clock, *, quiet: bool = False, columns: int = 80) -> ReadingLine:
    return ReadingLine(LiveLine(stream, quiet=quiet, clock=clock, columns=columns), patience_s=0.5, clock=clock)


def test_a_long_prompt_tells_how_far_it_is_and_leaves_nothing() -> None:
    stream, clock = Tty(), Clock()
    with reading(stream, clock) as line:
        line.hear(PrefillProgress(1000, 9000, 1000))
        clock.now = 10
        line.hear(PrefillProgress(2000, 9000, 1000))
        assert stream.shown == "reading 2,000 of 9,000 tokens · 1:10 min left · reused 1,000"
        line.hear(TextPiece("Yes"))
        assert stream.shown == ""
        line.hear(PrefillProgress(9000, 9000, 0))  # the answer has the screen now
        assert stream.shown == ""


def test_a_short_prompt_says_nothing() -> None:
    stream, clock = Tty(), Clock()
    with reading(stream, clock) as line:
        line.hear(PrefillProgress(0, 30, 0))
        clock.now = 0.4
        line.hear(PrefillProgress(30, 30, 0))
        line.hear(TextPiece("Yes"))
    assert stream.getvalue() == ""


def test_the_line_appears_though_the_first_chunk_takes_long() -> None:
    stream = Tty()
    with ReadingLine(LiveLine(stream, columns=80), patience_s=0.01) as line:
        line.hear(PrefillProgress(0, 9000, 0))
        deadline = time.monotonic() + 30
        while not stream.shown and time.monotonic() < deadline:
            time.sleep(0.005)
        assert stream.shown == "reading 0 of 9,000 tokens"
    assert stream.shown == ""


def test_a_warning_gets_a_line_of_its_own() -> None:
    stream, clock = Tty(), Clock()
    with reading(stream, clock) as line:
        line.hear(PrefillProgress(0, 9000, 0))
        clock.now = 1
        line.hear(PrefillProgress(1000, 9000, 0))
        line.hear(WarningRaised(Warning_("code", "words")))
        assert stream.shown == ""
        clock.now = 2
        line.hear(PrefillProgress(2000, 9000, 0))
        assert stream.shown.startswith("reading 2,000")


@pytest.mark.parametrize(("columns", "shown"), [(41, "reading 2,000 of 9,000 tokens · 7 s left"), (12, "reading 2,0")])
def test_the_line_never_wraps(columns: int, shown: str) -> None:
    stream, clock = Tty(), Clock()
    with reading(stream, clock, columns=columns) as line:
        line.hear(PrefillProgress(1000, 9000, 1000))
        clock.now = 1
        line.hear(PrefillProgress(2000, 9000, 1000))
        assert stream.shown == shown


@pytest.mark.parametrize(("stream", "quiet"), [(io.StringIO(), False), (Tty(), True)])
def test_nothing_moves_in_a_pipe_or_when_quiet(stream: io.StringIO, quiet: bool) -> None:
    clock = Clock()
    with reading(stream, clock, quiet=quiet) as line:
        line.hear(PrefillProgress(0, 9000, 0))
        clock.now = 5
        line.hear(PrefillProgress(1000, 9000, 0))
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (59.2, "59 s"), (61, "1:01 min"), (3599.7, "1:00 h"), (7260, "2:01 h")]
)
def test_a_time_to_wait_is_short(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def told(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, clock: Clock, **options: object) -> BatchTold:
    monkeypatch.setattr(sys, "stderr", stream)
    return BatchTold(**{"n_rows": 40, "source": "rows.jsonl", "clock": clock, **options})  # type: ignore[arg-type]


def test_a_batch_on_a_terminal_tells_rows_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, clock = Tty(), Clock()
    batch = told(monkeypatch, stream, clock)
    batch.progress(Summary())
    assert stream.shown == "0 of 40 rows"
    clock.now = 10
    batch.progress(Summary(n_done=8, n_failed=1, n_resumed=2, completion_tokens=50, seconds=10))
    assert stream.shown == "10 of 40 rows · 1 failed · 38 s left · 5 tokens/s"
    batch.clear()
    assert stream.shown == ""


def test_rows_on_the_same_screen_get_lines_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    stream, clock = Tty(), Clock()
    batch = told(monkeypatch, stream, clock)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    batch.progress(Summary())
    assert stream.shown == "0 of 40 rows"
    batch.write_stdout('{"index": 0}\n')
    assert stream.shown == ""
    assert capsysbinary.readouterr().out == b'{"index": 0}\n'


def test_a_long_batch_in_a_pipe_says_a_line_for_each_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, clock = io.StringIO(), Clock()
    batch = told(monkeypatch, stream, clock)
    for n_done in range(41):
        clock.now = n_done * 3.0
        batch.progress(Summary(n_done=n_done))
    assert [line.split(",")[0] for line in stream.getvalue().splitlines()] == [
        "10 of 40 rows",
        "20 of 40 rows",
        "30 of 40 rows",
    ]


def test_a_batch_ends_with_what_became_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    failure = (Row(3, "x", None), InputError("line 4: it is no JSON", hint="a row is an object"))
    summary = Summary(n_done=10, n_failed=1, n_resumed=30, completion_tokens=90, seconds=9, first_failure=failure)
    told(monkeypatch, stream, Clock()).end(summary, stats=False)
    assert stream.getvalue().splitlines() == [
        "9 rows answered (30 were there already) in 9 s, 90 tokens (10 tokens/s)",
        "warning: 1 of 10 rows failed; their lines say why",
        "first: index 3, id 'x': line 4: it is no JSON",
        "hint: a row is an object",
    ]


@pytest.mark.parametrize(
    ("resume", "hint"),
    [
        (None, "hint: with --resume OUT in place of > OUT, the same command goes on where it stopped"),
        ("out.jsonl", "hint: the same command goes on where this one stopped"),
    ],
)
def test_a_stopped_batch_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, resume: object, hint: str) -> None:
    stream = io.StringIO()
    told(monkeypatch, stream, Clock(), resume=resume).end(Summary(n_done=7, stopped=True), stats=False)
    assert stream.getvalue().splitlines() == ["stopped after 7 of 40 rows", hint]


def test_rows_are_counted_where_they_can_be_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a"}\n\n{"prompt": "b"}')
    with path.open("rb") as lines:
        assert count_rows(lines) == 2
        assert lines.read() == path.read_bytes()
    assert count_rows(io.BytesIO(b"x\n")) is None
