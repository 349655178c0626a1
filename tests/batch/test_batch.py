"""Batches on a scripted starter: order, errors, resuming, backpressure."""

from __future__ import annotations

import json
import math
import os
import random
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from localrun.batch import BatchRunner, ResumedFile, Row, RowReader, StreamOutput
from localrun.errors import ContextOverflowError, InputError
from localrun.params import GenerationParams
from localrun.responder import Done, ModelIdentity, Request, Result, TextPiece, Timings, Usage


def result(text: str, finish: Any = "stop") -> Result:
    return Result(text, "", finish, None, 1, ModelIdentity("fake"), Usage(completion_tokens=1), Timings())


class Starter:
    """Finishes rows in a random order, on a thread of its own; `fail` names prompts that fail."""

    def __init__(self, *, seed: int = 0, fail: tuple[str, ...] = ()) -> None:
        self.most_running = 0
        self.started: list[str] = []
        self._running: list[tuple[Any, Request, Any]] = []
        self._random = random.Random(seed)
        self._fail = fail
        self._change = threading.Condition()
        threading.Thread(target=self._finish_all, daemon=True).start()

    def __call__(self, request: Request, sink: Any) -> Any:
        text = request.messages[-1].content
        if text == "refuse":
            raise InputError("refused at once")

        class Handle:
            def stop(self) -> None:
                sink.put((self, Done(result("", "interrupted"))))

        handle = Handle()
        with self._change:
            self.started.append(text)
            self._running.append((handle, request, sink))
            self.most_running = max(self.most_running, len(self._running))
            self._change.notify()
        return handle

    def pick(self) -> tuple[Any, Request, Any] | None:
        """The row that is finished next; None to wait for more."""
        return self._running.pop(self._random.randrange(len(self._running))) if self._running else None

    def _finish_all(self) -> None:
        while True:
            with self._change:
                while (item := self.pick()) is None:
                    self._change.wait()
            handle, request, sink = item
            text = request.messages[-1].content
            sink.put((handle, TextPiece("noise")))
            sink.put((handle, ContextOverflowError("too long") if text in self._fail else Done(result(text.upper()))))


def run(lines: list[str], starter: Starter, output: Any = None, n_parallel: int = 4) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    target = output or StreamOutput(lambda line: written.append(json.loads(line)))
    runner = BatchRunner(starter, target, lambda r: {"text": r.text}, n_parallel=n_parallel)
    try:
        runner.run(RowReader(GenerationParams()).read(line.encode() for line in lines))
    finally:
        target.close()
    return written


def prompts(n: int) -> list[str]:
    return [json.dumps({"prompt": f"row {i}", "id": f"r{i}"}) for i in range(n)]


@pytest.mark.parametrize("seed", range(5))
def test_lines_come_in_the_order_of_the_input_whatever_finishes_first(seed: int) -> None:
    written = run(prompts(50), Starter(seed=seed))
    assert [line["index"] for line in written] == list(range(50))
    assert [line["text"] for line in written] == [f"ROW {i}" for i in range(50)]
    assert [line["id"] for line in written] == [f"r{i}" for i in range(50)]


def test_a_row_that_fails_is_an_error_of_its_own() -> None:
    lines = ['{"prompt": "good"}', "not json", '{"prompt": "refuse"}', "", '{"prompt": "bad"}', '{"x": 1}', "[1]"]
    written = run(lines, Starter(fail=("bad",)))
    assert [line["error"] is None for line in written] == [True, False, False, False, False, False]
    messages = [line["error"]["message"] for line in written[1:]]
    assert messages[0].startswith("line 2: ")
    assert messages[1:3] == ["refused at once", "too long"]
    assert messages[3].startswith("line 6: ")
    assert [line["error"]["code"] for line in written[1:]] == [2, 2, 5, 2, 2]


def test_no_more_rows_are_in_flight_than_can_be_used() -> None:
    starter = Starter()
    run(prompts(100), starter)
    assert starter.most_running <= 6


def test_a_slow_first_row_does_not_let_the_rest_pile_up() -> None:
    read_while_stuck = 0

    class Stuck(Starter):
        """Row 0 comes last: only when nothing else is left that may run."""

        def pick(self) -> tuple[Any, Request, Any] | None:
            nonlocal read_while_stuck
            while True:
                for i, item in enumerate(self._running):
                    if item[1].messages[-1].content != "row 0":
                        return self._running.pop(i)
                if not self._running:
                    return None
                if not self._change.wait(0.2):
                    read_while_stuck = read_while_stuck or len(self.started)
                    return self._running.pop()

    written = run(prompts(200), Stuck())
    assert [line["index"] for line in written] == list(range(200))
    assert 6 < read_while_stuck < 60


def test_a_stopped_batch_writes_whole_rows_and_says_so() -> None:
    written: list[str] = []
    starter = Starter()
    runner = BatchRunner(starter, StreamOutput(written.append), lambda r: {"text": r.text}, n_parallel=4)

    def rows() -> Iterator[Row]:
        for row in RowReader(GenerationParams()).read(line.encode() for line in prompts(1000)):
            if row.index == 50:
                runner.stop()
            yield row

    summary = runner.run(rows())
    assert summary.stopped
    assert [json.loads(line)["index"] for line in written] == list(range(len(written)))
    assert len(written) <= 51


@pytest.mark.parametrize("cut", [0, 1, 7, 20])
def test_a_resumed_run_loses_no_row_and_writes_none_twice(cut: int, tmp_path: Path) -> None:
    whole = run(prompts(20), Starter())
    path = tmp_path / "out.jsonl"
    text = "".join(json.dumps(line) + "\n" for line in whole[:cut])
    path.write_text(text + (f'{{"index": {cut}, "te' if cut < 20 else ""))
    starter = Starter(seed=3)
    run(prompts(20), starter, ResumedFile(path))
    assert [json.loads(line) for line in path.read_text().splitlines()] == whole
    assert len(starter.started) == 20 - cut


FOREIGN = [
    "hello\n",
    '{"index": 5, "error": null}\n',
    '{"index": 0, "error": null}\n{"index": 0, "error": null}\n',
    '{"index": false, "error": null}\n',
    '{"index": 0, "prompt": "a table of somebody else"}\n',
    "[]\n",
    "a letter without a line end",
    '{"prompt": "the input"}',
    '{"index": 7, "id": null',
    '{"index": 0, "error": null}\n{"index": 7, "id',
    "[" * 100_000 + "\n",
]


@pytest.mark.parametrize("content", FOREIGN, ids=range(len(FOREIGN)))
def test_a_file_that_is_no_output_of_a_batch_is_left_alone(content: str, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match="not the output of a batch"):
        ResumedFile(path)
    assert path.read_text() == content


@pytest.mark.parametrize("rest", ["{", '{"ind', '{"index": 0', '{"index": 0, "id": null, "text": "half'])
def test_the_beginning_of_a_row_is_cut_off_wherever_it_was_broken(rest: str, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(rest)
    output = ResumedFile(path)
    output.close()
    assert output.n_done == 0
    assert path.read_text() == ""


OTHER_INPUTS = {
    "other rows": [json.dumps({"prompt": f"another {i}", "id": f"r{i}"}) for i in range(20)],
    "one other row": [*prompts(20)[:4], '{"prompt": "another", "id": "r4"}', *prompts(20)[5:]],
    "rows in another order": [*reversed(prompts(8)), *prompts(20)[8:]],
    "fewer rows": prompts(7),
    "no rows": [],
}


@pytest.mark.parametrize("lines", OTHER_INPUTS.values(), ids=OTHER_INPUTS)
def test_the_output_of_another_input_is_refused_and_left_as_it_is(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    run(prompts(8), Starter(), ResumedFile(path))
    before, starter = path.read_text(), Starter()
    with pytest.raises(InputError, match=r"rows of the output are of another input|has 8 rows already"):
        run(lines, starter, ResumedFile(path))
    assert (path.read_text(), starter.started) == (before, [])


@pytest.mark.parametrize("changed", [{"prompt": "another PROMPT"}, {"system": "another system prompt"}])
def test_an_output_with_other_words_before_its_rows_is_refused(changed: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    run(prompts(8), Starter(), ResumedFile(path))
    output = ResumedFile(path)
    runner = BatchRunner(Starter(), output, lambda r: {"text": r.text}, n_parallel=4)
    with closing(output), pytest.raises(InputError, match="another input"):
        runner.run(RowReader(GenerationParams(), **changed).read(line.encode() for line in prompts(20)))


def test_rows_may_be_added_to_an_input_and_blank_lines_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    run(prompts(8), Starter(), ResumedFile(path))
    run(["", *prompts(12)], Starter(), ResumedFile(path))
    assert [json.loads(line) for line in path.read_text().splitlines()] == run(prompts(12), Starter())


def test_only_a_regular_file_can_be_resumed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull), tmp_path):
        with pytest.raises(InputError, match="not a regular file"):
            ResumedFile(path)


def test_a_row_that_fails_in_a_way_nobody_thought_of_is_still_only_its_own() -> None:
    class Surprised(Starter):
        def __call__(self, request: Request, sink: Any) -> Any:
            if request.messages[-1].content == "row 1":
                raise ZeroDivisionError("what now")
            return super().__call__(request, sink)

    written = run(prompts(4), Surprised())
    assert [line["error"] is None for line in written] == [True, False, True, True]
    assert "ZeroDivisionError: what now" in written[1]["error"]["message"]


def test_an_answer_that_cannot_be_written_as_json_is_an_error_of_its_row() -> None:
    written: list[str] = []
    runner = BatchRunner(
        Starter(),
        StreamOutput(written.append),
        lambda r: {"text": r.text, "score": math.nan if r.text == "ROW 1" else 0.5},
        n_parallel=2,
    )
    summary = runner.run(RowReader(GenerationParams()).read(line.encode() for line in prompts(3)))
    assert [json.loads(line)["error"] is None for line in written] == [True, False, True]
    assert (summary.n_done, summary.n_failed) == (3, 1)
    assert not any("NaN" in line.partition('"error"')[0] for line in written)


UNWRITABLE = [
    (r'{"raw": "\ud800"}', "raw"),
    (r'{"prompt": "a\udfffb"}', "prompt"),
    (r'{"prompt": "x", "id": "\ud800"}', "id"),
    (r'{"prompt": "x", "id": {"a": ["\udcff"]}}', "id/a/0"),
    (r'{"prompt": "x", "\ud800": 1}', "key"),
    (r'{"prompt": "x", "system": "\ud800"}', "system"),
    (r'{"prompt": "x", "stop": ["\ud800"]}', "stop/0"),
    (r'{"prompt": "x", "choice": ["a", "\ud800"]}', "choice/1"),
    (r'{"prompt": "x", "schema": {"const": "\ud800"}}', "schema/const"),
    (r'{"messages": [{"role": "user", "content": "\ud800"}]}', "messages/0/content"),
    ('{"prompt": "x", "id": NaN}', "id is nan"),
    ('{"prompt": "x", "id": [1e999]}', "id/0 is inf"),
    ('{"prompt": "x", "schema": {"const": -Infinity}}', "schema/const is -inf"),
    ('{"prompt": "x", "id": ' + "[" * 100_000, "no JSON"),
]


@pytest.mark.parametrize(("line", "place"), UNWRITABLE, ids=[place for _, place in UNWRITABLE])
def test_what_is_no_text_or_no_number_costs_its_row_alone(line: str, place: str) -> None:
    lines: list[str] = []
    runner = BatchRunner(Starter(), StreamOutput(lines.append), lambda r: {"text": r.text}, n_parallel=2)
    read = RowReader(GenerationParams()).read([b'{"prompt": "a"}', line.encode(), b'{"prompt": "b", "id": "c"}'])
    runner.run(read)
    before, bad, after = (json.loads(text.encode(), parse_constant=pytest.fail) for text in lines)
    assert (before["text"], after["text"], after["id"]) == ("A", "B", "c")
    assert (bad["index"], bad["id"], bad["error"]["code"]) == (1, None, 2)
    assert bad["error"]["message"].startswith("line 2")
    assert place in bad["error"]["message"]
