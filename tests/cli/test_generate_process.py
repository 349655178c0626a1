"""`generate` as a process with the real model: pipes, signals, exit codes, output formats."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.process import COMMAND, environment, run, start

pytestmark = pytest.mark.model
RAW = ["--raw", "--temperature", "0", "--no-cache"]


def test_stdout_is_the_answer_and_nothing_else(smollm2: Path) -> None:
    done = run("generate", "-m", smollm2, *RAW, "-n", "8", stdin=b"The capital of France is")
    assert done.code == 0
    assert done.out == b" Paris.\n\nThe United States has"
    assert done.err == ""


def test_the_result_object_has_every_key(smollm2: Path) -> None:
    done = run("generate", "-m", smollm2, *RAW, "-n", "3", "--json", "The capital of France is")
    assert set(done.json) == {
        "text", "reasoning", "finish", "stop", "seed", "model", "usage", "timings", "warnings",
    }  # fmt: skip
    assert set(done.json["model"]) == {"name", "path", "quantization", "sha256"}
    assert set(done.json["usage"]) == {
        "prompt_tokens", "cached_ram_tokens", "cached_disk_tokens", "completion_tokens", "reasoning_tokens",
        "draft_tokens", "draft_accepted",
    }  # fmt: skip
    assert set(done.json["timings"]) == {
        "load_s", "prefill_s", "ttft_s", "decode_s", "total_s", "prefill_tps", "decode_tps",
    }  # fmt: skip
    assert done.json["finish"] == "length"
    assert done.err == ""


def test_events_are_json_lines_and_end_with_the_result(smollm2: Path) -> None:
    done = run("generate", "-m", smollm2, *RAW, "-n", "3", "--events", "The capital of France is")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert lines[-1]["type"] == "done"
    assert "".join(line["text"] for line in lines if line["type"] == "text") == lines[-1]["text"]


def test_a_second_process_finds_the_first_ones_work(smollm2: Path, tmp_path: Path) -> None:
    document = tmp_path / "document.txt"
    document.write_text("The ferry leaves at noon and comes back at night. " * 20)
    command = ["generate", "-m", smollm2, "-f", document, "--temperature", "0", "-n", "6", "--json"]
    first, second = (run(*command, question).json for question in ("When does it leave?", "When does it return?"))
    assert first["usage"]["cached_disk_tokens"] == 0
    assert second["usage"]["cached_disk_tokens"] > 0.7 * second["usage"]["prompt_tokens"]
    cold = run(*command, "--no-cache", "When does it return?").json
    assert second["text"] == cold["text"]
    listed = run("cache", "stats", "--json").json
    assert listed["blocks"] > 0
    assert run("cache", "clear").code == 0
    assert run("cache", "stats", "--json").json["blocks"] == 0


def test_a_reader_that_closes_the_pipe_ends_it_quietly(smollm2: Path) -> None:
    command = f"{' '.join(COMMAND)} generate -m {smollm2} --raw -n 300 --temperature 0 x"
    script = f"{command} | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment(), timeout=120
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_is_an_error(smollm2: Path) -> None:
    with open("/dev/full", "wb") as full:
        process = start("generate", "-m", smollm2, *RAW, "-n", "3", "Hello", stdout=full)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.decode().startswith("error: the output could not be written")
    assert err.count(b"error: ") == err.count(b"hint: ") == 1
    assert b"Traceback" not in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_answer_and_keeps_what_was_said(number: int, code: int, smollm2: Path) -> None:
    process = start("generate", "-m", smollm2, *RAW, "-n", "5000", "--on-overflow", "shift", "Once upon a time")
    assert process.stdout is not None
    first = process.stdout.read(10)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert len(first) == 10
    assert b"Traceback" not in err


def test_an_interrupted_json_result_says_so(smollm2: Path) -> None:
    process = start("generate", "-m", smollm2, *RAW, "-n", "5000", "--on-overflow", "shift", "--json", "Once upon")
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    if out:
        assert json.loads(out)["finish"] == "interrupted"


def test_a_signal_while_loading_ends_it(smollm2: Path) -> None:
    process = start("generate", "-m", smollm2, *RAW, "-n", "50", "Hello")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in err


def _hears_signals(pid: int) -> bool:
    """Whether a process has its own handler for SIGHUP, the last that ours are set for."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGHUP - 1) & 1)


@pytest.fixture
def hangups_count() -> Iterator[None]:
    """Also under `nohup`, which lets processes ignore SIGHUP and whose setting children inherit."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangups_count")
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="only Linux tells which signals are caught")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_at_any_moment_of_the_start_ends_it_with_its_own_code(number: int, code: int, smollm2: Path) -> None:
    for wait in (0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3):
        process = start("generate", "-m", smollm2, *RAW, "-n", "5000", "--ignore-eos", "--no-cache", "Hello")
        while not _hears_signals(process.pid):
            time.sleep(0.001)
        time.sleep(wait)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
        assert process.returncode == code
        assert b"Traceback" not in err


def test_a_cache_that_cannot_be_kept_is_one_warning(smollm2: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()  # no folder: nothing can be written there, whoever asks
    command = ("generate", "-m", smollm2, "--raw", "--temperature", "0", "-n", "2", "The capital of France is")
    told, quiet, strict, without = (
        run(*command, *more, LOCALRUN_HOME=str(tmp_path)) for more in ((), ("-q",), ("--strict",), ("--no-cache",))
    )
    assert told.err.count("warning: the prefix cache is off") == 1
    assert (told.code, quiet.code, strict.code, without.code) == (0, 0, 1, 0)
    assert told.out == quiet.out == without.out
    assert (quiet.err, strict.out, without.err) == ("", b"", "")


def test_on_a_terminal_the_answer_ends_with_a_newline_and_reasoning_may_be_dim(smollm2: Path) -> None:
    leader, follower = pty.openpty()
    process = start("generate", "-m", smollm2, *RAW, "-n", "2", "The capital of France is", stdout=follower)
    os.close(follower)
    chunks: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(leader, 1024):
                chunks.append(chunk)
        except OSError:
            return

    reader = threading.Thread(target=read)
    reader.start()
    assert process.wait(timeout=120) == 0
    reader.join(timeout=10)
    os.close(leader)
    process.communicate()
    assert b"".join(chunks) == b" Paris.\r\n"


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"COLUMNS": "0"}, {"LC_ALL": "C"}])
def test_surroundings_do_not_change_the_bytes(variables: dict[str, str], smollm2: Path) -> None:
    done = run("generate", "-m", smollm2, *RAW, "-n", "3", "The capital of France is", **variables)
    assert (done.code, done.out, done.err) == (0, b" Paris.\n", "")


def test_stop_strings_zero_tokens_and_strictness_have_their_exit_codes(smollm2: Path) -> None:
    assert run("generate", "-m", smollm2, *RAW, "-n", "9", "--stop", "Paris", "The capital of France is").out == b" "
    nothing = run("generate", "-m", smollm2, *RAW, "-n", "0", "Hello")
    assert (nothing.code, nothing.out) == (0, b"")
    strict = run("generate", "-m", smollm2, *RAW, "-n", "2", "--strict", "Hello")
    assert strict.code == 6
    assert "length" in strict.err
    long = run("generate", "-m", smollm2, *RAW, "--ctx", "64", stdin=b"word " * 200)
    long.assert_refused(5, "64")


@pytest.mark.parametrize("name", ["mödel 日本 (1).gguf", "with space.gguf", "100%.gguf", "-x.gguf", "a:b.gguf"])
def test_awkward_paths_work(name: str, smollm2: Path, tmp_path: Path) -> None:
    (tmp_path / name).symlink_to(smollm2)
    done = run("generate", "-m", f"{tmp_path}/{name}", *RAW, "-n", "1", "Hi", LC_ALL="C")
    assert (done.code, done.err) == (0, "")


def test_a_constrained_answer_that_cannot_be_finished_exits_6_and_a_whole_one_0(smollm2: Path) -> None:
    object_ = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    schema = json.dumps({**object_, "additionalProperties": False})
    whole = run("generate", "-m", smollm2, "--schema", schema, "--temperature", "0", "A number, please")
    assert whole.code == 0
    assert set(whole.json) == {"n"}
    cut = run("generate", "-m", smollm2, "--schema", schema, "-n", "2", "A number, please")
    assert cut.code == 6
    refused = run("generate", "-m", smollm2, "--schema", '{"type": "strng"}', "x")
    refused.assert_refused(2, "strng")


def test_a_batch_keeps_its_order_and_resumes_after_a_kill(smollm2: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"raw": f"Count: {i}, {i + 1},", "id": i}) + "\n" for i in range(12)))
    command = ["generate", "-m", smollm2, "--temperature", "0", "-n", "6", "--parallel", "3", "--batch", rows]
    out = tmp_path / "out.jsonl"
    process = start(*command, "--resume", out)
    deadline = time.monotonic() + 60
    while (not out.exists() or out.read_text().count("\n") < 2) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    done = run(*command, "--resume", out)
    assert (done.code, done.out) == (0, b"")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["index"], line["id"], line["error"]) for line in lines] == [(i, i, None) for i in range(12)]
    for line in lines:
        assert str(line["id"] + 2) in line["text"]


def test_samples_are_lines_with_seeds_that_count_up(smollm2: Path) -> None:
    done = run("generate", "-m", smollm2, "--samples", "3", "--seed", "7", "-n", "4", "Say something")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["seed"] for line in lines] == [7, 8, 9]
    assert lines[2]["usage"]["cached_ram_tokens"] > 0


def test_the_prompt_can_be_shown_instead_of_answered(smollm2: Path) -> None:
    done = run("generate", "-m", smollm2, "--show-prompt", "--json", "Hello")
    assert done.json["prompt"].endswith("Hello<|im_end|>\n<|im_start|>assistant\n")
    assert done.json["count"] == len(done.json["tokens"])


def test_tokenize_shows_ids_and_pieces(smollm2: Path) -> None:
    assert run("tokenize", "-m", smollm2, "--json", "Say hi 🙂").json["pieces"] == ["Say", " hi", " 🙂"]
    assert run("tokenize", "-m", smollm2, "--count", stdin=b"a\0b").out == b"3\n"


def test_tokenize_counts_every_byte_and_nothing_is_no_error(smollm2: Path) -> None:
    assert run("tokenize", "-m", smollm2, "--count", stdin=b"").out == b"0\n"
    assert run("tokenize", "-m", smollm2, "").out == b""
    assert run("tokenize", "-m", smollm2, "--json", stdin=b"\n").json["pieces"] == ["\n"]
    assert run("tokenize", "-m", smollm2, "--json", stdin=b"abc\n").json["pieces"] == ["abc", "\n"]
    assert run("tokenize", "-m", smollm2, "--json", "x", stdin=b"not read").json["pieces"] == ["x"]


def test_no_temporary_files_are_left(smollm2: Path, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tmp é"
    folder.mkdir()
    run("generate", "-m", smollm2, *RAW, "-n", "1", "Hi", TMPDIR=str(folder))
    assert list(folder.iterdir()) == []
    shutil.rmtree(folder)


def test_only_code_goes_into_the_pipe(smollm2: Path) -> None:
    prose = run("generate", "-m", smollm2, *RAW, "-n", "4", "-x", "The capital of France is")
    assert (prose.code, prose.out) == (7, b"")
    assert prose.err.splitlines()[0] == 'error: the answer has no code block, it says "Paris."'
    assert len(prose.err.splitlines()) == 2
    fenced = "Example:\n```python\nprint(1)\n```\nAnother example:\n```python\nprint("
    code = run("generate", "-m", smollm2, *RAW, "-n", "12", "-x", "--stop", "```", fenced)
    assert code.code == 7 or code.out
