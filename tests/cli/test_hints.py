"""A hint leads to what works: it names a command that is there, a flag that takes the value, the place of a setting."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import localrun
from localrun.cli.generate import cut_off_note
from localrun.cli.main import run
from localrun.cli.quantize_progress import Bar, Lines
from localrun.errors import UsageError
from localrun.responder import ModelIdentity, Result, Timings, Usage
from quantize.progress import Progress


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) != 0
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["run", "x"], "hint: localrun --help shows what there is"),
        (
            ["-m", "smollm2:135m", "generate", "two words"],
            "flags come after the command: localrun generate -m smollm2:135m 'two words'",
        ),
        (["list", "foo"], "error: list takes no 'foo'\nhint: localrun list --help shows what there is"),
        (["chat", "m", "hello"], "error: chat takes no 'hello'\nhint: it takes a model; what you want to say"),
        (["generate", "two", "words"], "error: generate takes no 'words'\nhint: a text of several words is put in"),
        (
            ["generate", "x", "--schema", "yes-no"],
            "error: --schema yes-no: yes-no is a grammar\nhint: --grammar",
        ),
        (["generate", "x", "--grammar", "ner"], "error: --grammar ner: ner is a schema\nhint: --schema ner takes it"),
        (["generate", "x", "--engine", "127.0.0.1:8099"], "hint: a URL begins with its scheme: http://127.0.0.1:8099"),
        (["generate", "x", "--engine", "localhost:1/v1"], "hint: a URL begins with its scheme: http://localhost:1/v1"),
        (["generate", "x", "--engine", "my.box"], '[engines."my.box"]'),
        (["generate", "--batch", "rows.jsonl", "-x"], "error: --batch excludes -x"),
        (["generate", "--batch", "rows.jsonl", "--events"], "error: --batch excludes --events"),
        (["generate", "--batch", "rows.jsonl", "--show-prompt"], "error: --batch excludes --show-prompt"),
        (["rm", "smollm2:360m", "--yes"], "smollm2:360m is not on this machine\nhint: `localrun list` shows what is"),
        (["generate", "x", "--top-k", "1.5"], "--top-k is '1.5': it must be a whole number"),
        (["generate", "x", "--seed", "-1"], "seed is -1, outside [0, 4294967294]"),
    ],
    ids=" ".join,
)
def test_a_hint_names_what_works(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.setattr("localrun.cli.inputs.select.select", lambda *_: ([sys.stdin], [], []))
    assert hint in told(capsys, *arguments)


@pytest.mark.parametrize(("arguments", "usage"), [(["help"], "COMMAND"), (["help", "list"], "Usage: localrun list")])
def test_help_is_a_word_too(arguments: list[str], usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    assert usage in capsys.readouterr().out


def test_ls_is_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "--catalog"]) == 0
    listed = capsys.readouterr().out
    assert run(["ls", "--catalog"]) == 0
    assert capsys.readouterr().out == listed != ""


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("LOCALRUN_MODEL", "nope", "no model 'nope' is known (its name stands in LOCALRUN_MODEL)"),
        ("LOCALRUN_THREADS", "0", "LOCALRUN_THREADS: threads is 0"),
        ("LOCALRUN_CTX", "1", "LOCALRUN_CTX: ctx is 1"),
        ("LOCALRUN_TOP_P", "7", "LOCALRUN_TOP_P: top-p is 7.0"),
        ("LOCALRUN_MAX_TOKENS", "-7", "LOCALRUN_MAX_TOKENS: max-tokens is -7"),
    ],
)
def test_a_value_that_nobody_typed_is_told_with_its_place(
    variable: str, value: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.setattr("localrun.cli.inputs.select.select", lambda *_: ([sys.stdin], [], []))
    assert words in told(capsys, "generate", "x")


def test_names_are_checked_before_the_first_model_is_fetched(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localrun.catalog.resolve", lambda *_, **__: pytest.fail("something was fetched"))
    assert "no model 'nope' is known" in told(capsys, "pull", "smollm2:135m", "nope")


def test_a_checkpoint_that_should_answer_is_told_how_to_become_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.safetensors").touch()
    assert f"localrun quantize {tmp_path} -o" in told(capsys, "show", str(tmp_path))


def test_a_page_of_measurements_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "page.html could not be written" in told(
        capsys, "bench", "nope", "--html", str(tmp_path / "no" / "page.html")
    )


@pytest.mark.parametrize(
    ("finish", "note"),
    [
        ("length", "note: cut off after 20 tokens by the limit of -n\n"),
        ("timeout", "note: cut off after 20 tokens by the limit of --timeout\n"),
        ("context", "note: cut off after 20 tokens by the limit of --ctx\n"),
        ("stop", ""),
        ("stop_string", ""),
    ],
)
def test_a_person_is_told_why_an_answer_ends(finish: str, note: str) -> None:
    result = Result(
        "text",
        "",
        finish,
        None,
        1,
        ModelIdentity("fake"),
        Usage(completion_tokens=20),
        Timings(),  # type: ignore[arg-type]
    )
    assert cut_off_note(result) == note


@pytest.mark.parametrize("kind", [Bar, Lines])
@pytest.mark.parametrize(
    ("last", "words"),
    [
        (None, "the same command begins anew"),
        (Progress("base", "", 1, 2, 0.0), "the same command begins anew"),
        (Progress("calibration text", "", 99, 100, 0.0), "the same command begins anew"),
        (Progress("quantize", "", 1, 2, 0.0), "goes on from there"),
        (Progress("quantize", "", 2, 2, 0.0), "the model is written"),
    ],
)
def test_a_stopped_quantization_says_what_is_left_on_a_line_of_its_own(
    kind: type[Bar | Lines], last: Progress | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = kind()
    if last is not None:
        shown.update(last)
    shown.end_line()
    assert words in shown.what_is_left
    assert last is None or capsys.readouterr().err.endswith("\n")


def test_the_package_lists_what_it_offers() -> None:
    assert {"load", "Message", "LocalrunError"} <= set(dir(localrun))


@pytest.mark.parametrize(
    ("given", "meant"), [("max_token", "max_tokens"), ("temprature", "temperature"), ("grammer", "grammar")]
)
def test_an_unknown_parameter_names_the_one_that_was_meant(given: str, meant: str) -> None:
    from localrun.api import _request

    with pytest.raises(UsageError, match=given) as caught:
        _request("x", None, {given: 1})
    assert caught.value.hint == f"did you mean {meant}?"
    with pytest.raises(UsageError, match="the prompt is None; it must be a text"):
        _request(None, None, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "meant"), [("ctx", "n_ctx"), ("thread", "threads"), ("off_line", "offline")])
def test_an_unknown_parameter_of_load_names_the_one_that_was_meant(given: str, meant: str) -> None:
    with pytest.raises(UsageError, match=given) as caught:
        localrun.load("nope", **{given: 1})
    assert caught.value.hint == f"did you mean {meant}?"


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"a\0b", "it holds a NUL byte at offset 1"), (b"\xff\0", "is not text"), (b" \n", "is empty")],
)
def test_a_file_that_is_no_text_or_empty_is_named(
    content: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.setattr("localrun.cli.inputs.select.select", lambda *_: ([sys.stdin], [], []))
    path = tmp_path / "notes"
    path.write_bytes(content)
    error = told(capsys, "generate", "-f", str(path))
    assert words in error
    assert str(path) in error
