"""A script goes on with a saved chat, and the chat finds what the script said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.process import run


@pytest.mark.model
def test_a_script_continues_a_chat_and_branches_from_it(smollm2: Path) -> None:
    run("chat", "--plain", smollm2, stdin=b"My name is Ada.\n", LOCALRUN_MAX_TOKENS="8")
    first = run("generate", "--session", "last", "-n", "6", "--temperature", "0", "--json", "What is my name?")
    assert first.code == 0, first.err
    assert first.json["usage"]["prompt_tokens"] > 40
    shown = run("sessions", "show", "last").out.decode()
    assert "What is my name?" in shown
    assert first.json["text"].strip() in shown
    branch = run("generate", "--session", "last:1", "-n", "4", "And mine?")
    assert branch.code == 0, branch.err
    assert "What is my name?" not in run("sessions", "show", "last").out.decode().split("And mine?")[-1]


def test_a_session_that_is_not_there_is_said_so() -> None:
    done = run("generate", "--session", "nosuch", "hello")
    done.assert_refused(done.code, "nosuch")
    assert done.code in (1, 2)


def test_a_session_excludes_what_has_no_place_in_it() -> None:
    run("generate", "--session", "last", "--raw", "hello").assert_refused(2, "--session")


def test_a_batch_has_no_session(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "hi"}\n')
    for more in (["--session", "nosuch"], ["--samples", "2"]):
        run("generate", "--batch", rows, *more).assert_refused(2, "--batch excludes --session and --samples")
