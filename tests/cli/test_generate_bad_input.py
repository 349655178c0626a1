"""What `generate` says to input that makes no sense. No model is needed: it is all found before one is loaded."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from localrun.cli import main
from tests.cli.process import Done


@pytest.fixture
def localrun(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Runs a command in this process, with the bytes given as stdin."""

    def call(*arguments: str, stdin: bytes = b"") -> Done:
        source = io.TextIOWrapper(_Bytes(stdin))
        monkeypatch.setattr(sys, "stdin", source)
        monkeypatch.setattr("localrun.cli.inputs.select.select", lambda *_: ([source], [], []))
        code = main.run(list(arguments))
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        return Done(code, captured.out, captured.err.decode())

    return call


class _Bytes(io.BytesIO):
    def isatty(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--temperature", "-1"], ["temperature", "-1"]),
        (["--temperature", "nan"], ["temperature", "nan"]),
        (["--temperature", "inf"], ["temperature", "inf"]),
        (["--temperature", "warm"], ["--temperature", "warm"]),
        (["--top-p", "1.5"], ["top-p", "1.5"]),
        (["--top-p", "-1"], ["top-p"]),
        (["--min-p", "2"], ["min-p", "2"]),
        (["--repeat-penalty", "0"], ["repeat-penalty"]),
        (["--repeat-penalty", "-1"], ["repeat-penalty"]),
        (["--logit-bias", "abc"], ["logit-bias", "abc"]),
        (["--logit-bias", "-1=2"], ["logit-bias"]),
        (["--logit-bias", "5=nan"], ["logit-bias", "5"]),
        (["--sampler-order", "top_k,warmth"], ["warmth"]),
        (["--mirostat", "3"], ["mirostat", "3"]),
        (["--mirostat", "nan"], ["mirostat", "nan"]),
        (["--dry", "1,1,nan"], ["dry", "nan"]),
        (["--xtc", "2"], ["xtc"]),
        (["--dry", "x"], ["--dry"]),
        (["--seed", "-5"], ["seed"]),
        (["--stop", ""], ["stop", "empty"]),
        (["-m", ""], ["--model", "it must be a name"]),
        (["-m", " "], ["--model", "it must be a name"]),
        (["--engine", ""], ["--engine", "it must be a name"]),
        (["--draft", ""], ["--draft", "it must be a name"]),
        (["-n", "-2"], ["max-tokens", "-2"]),
        (["-n", "many"], ["many"]),
        (["--ctx", "0"], ["ctx", "0"]),
        (["--ctx", "lots"], ["ctx", "lots"]),
        (["--threads", "0"], ["threads", "0"]),
        (["--kv-type", "q3"], ["kv-type", "q3"]),
        (["--gpu-layers", "-1"], ["gpu-layers"]),
        (["--on-overflow", "panic"], ["on-overflow", "panic"]),
        (["--timeout", "0"], ["timeout"]),
        (["--think-budget", "-1"], ["think-budget"]),
        (["--json", "--events"], ["--json", "--events"]),
        (["--raw", "--system", "x"], ["--raw"]),
        (["--no-such-flag"], ["--no-such-flag"]),
        (["-f", "/nowhere/at/all.txt"], ["/nowhere/at/all.txt"]),
        (["-f", "/"], ["folder"]),
    ],
    ids=" ".join,
)
def test_a_bad_flag_is_a_usage_error_that_names_it(localrun, flags: list[str], words: list[str]) -> None:  # type: ignore[no-untyped-def]
    localrun("generate", "hello", *flags).assert_refused(2, *words)


@pytest.mark.parametrize("stdin", [b"", b"  \n"])
def test_no_prompt_is_a_usage_error(localrun, stdin: bytes) -> None:  # type: ignore[no-untyped-def]
    localrun("generate", stdin=stdin).assert_refused(2, "no prompt")


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        (b"caf\xe9 au lait", ["0xe9", "offset 3", "line 1"]),
        (b"one\ntwo \xff", ["line 2"]),
        (b"\xff\xfeh\x00i\x00\x00", ["UTF-16"]),
        (bytes(range(128, 256)) * 32, ["UTF-8"]),
    ],
)
def test_bytes_that_are_no_text_are_an_error_that_says_where(localrun, stdin: bytes, words: list[str]) -> None:  # type: ignore[no-untyped-def]
    localrun("generate", "-", stdin=stdin).assert_refused(2, *words)


@pytest.mark.parametrize("name", ["nosuch:1b", "/nowhere/model.gguf", "hf:", "pypi:x", "smolm2:135m"])
def test_an_unknown_model_is_said_to_be_unknown(localrun, name: str) -> None:  # type: ignore[no-untyped-def]
    done = localrun("generate", "-m", name, "--offline", "hello")
    assert done.code in (2, 3)
    done.assert_refused(done.code, name.removeprefix("hf:").split("==")[0].split(":")[0] or "hf:")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<!DOCTYPE html><html>", ["HTML"]),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", ["LFS"]),
        (b"", ["empty"]),
        (b"GGU", ["GGU"]),
        (b"GGUF\x03\x00\x00\x00" + b"\xff" * 16, []),
    ],
    ids=["html", "lfs", "empty", "short", "hostile"],
)
def test_a_file_that_is_no_model_says_what_it_is(localrun, content: bytes, words: list[str], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    localrun("generate", "-m", str(path), "hello").assert_refused(2, str(path), *words)


def test_a_setting_in_the_file_that_makes_no_sense_says_where_it_stands(localrun, home: Path) -> None:  # type: ignore[no-untyped-def]
    config = home / "config" / "config.toml"
    config.parent.mkdir(parents=True)
    for text, word in [
        ("temprature = 1\n", "temperature"),
        ("temperature = 'hot'\n", "temperature"),
        ("x = [\n", "TOML"),
    ]:
        config.write_text(text)
        localrun("generate", "hello").assert_refused(2, "config.toml", word)


def test_a_bad_variable_is_named(localrun, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("LOCALRUN_TOP_P", "7")
    localrun("generate", "hello").assert_refused(2, "top-p", "7")
    monkeypatch.setenv("LOCALRUN_TOP_P", "seven")
    localrun("generate", "hello").assert_refused(2, "LOCALRUN_TOP_P", "seven")


def test_an_unknown_command_suggests_the_right_one(localrun) -> None:  # type: ignore[no-untyped-def]
    localrun("generat", "hello").assert_refused(2, "generat", "generate")


@pytest.mark.parametrize("command", ["plan", "bench", "chat", "show", "pull"])
def test_an_empty_name_is_no_name_for_the_default(command: str, localrun) -> None:  # type: ignore[no-untyped-def]
    localrun(command, "").assert_refused(2, "name")


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        ([], b"a\xff", ["stdin is not UTF-8 text", "offset 1"]),
        (["a\udcff"], b"", ["TEXT is not UTF-8 text"]),
        (["--ids", "--count", "x"], b"", ["--ids, --count and --json exclude each other"]),
    ],
)
def test_tokenize_refuses_what_is_no_text(arguments, stdin, words, localrun) -> None:  # type: ignore[no-untyped-def]
    localrun("tokenize", *arguments, stdin=stdin).assert_refused(2, *words)


@pytest.mark.parametrize(
    ("limit", "trained", "hint"),
    [(2048, 8192, "raise --ctx"), (8192, 8192, "shorten the prompt"), (8192, 0, "raise --ctx")],
)
def test_an_answer_cut_by_the_context_gets_a_hint_that_can_help(limit: int, trained: int, hint: str) -> None:
    from localrun.cli.generate import judge
    from localrun.errors import IncompleteOutputError
    from localrun.params import GenerationParams
    from localrun.responder import ModelIdentity, Result, Timings, Usage

    result = Result("x", "", "context", None, 1, ModelIdentity("m"), Usage(), Timings(), context_limit=limit)
    with pytest.raises(IncompleteOutputError) as caught:
        judge(result, GenerationParams(), strict=True, trained=trained)
    assert (caught.value.hint or "").startswith(hint)
