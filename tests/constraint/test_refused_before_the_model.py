"""A constraint that cannot work ends the command before a model is looked for: exit 2, one clear line, no output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localrun.cli.main import run

CASES = [
    ("--grammar", 'root ::= "a', "g.gbnf:1:10"),
    ("--grammar", 'foo ::= "x"', "no rule 'root'"),
    ("--grammar", "root ::= bar", "'bar' is not defined"),
    ("--grammar", "", "the grammar is empty"),
    ("--grammar", 'root ::= root "a" | "b"', "left recursion"),
    ("--grammar", "root ::= " + "(" * 60_000, "nested deeper"),
    ("--schema", "not json", "g.gbnf:1:1: this is no JSON"),
    ("--schema", "[1]", "this is an array"),
    ("--schema", "3", "this is a number"),
    ("--schema", '{"type":"strng"}', "at /type"),
    ("--schema", '{"properties":{"a":{"pattern":"^(?=a)b$"}}}', "at /properties/a/pattern"),
    ("--schema", '{"$ref":"https://example.com/s"}', "leads out of the document"),
    ("--schema", '{"$defs":{"A":{"$ref":"#/$defs/A"}},"$ref":"#/$defs/A"}', "circle"),
]


@pytest.fixture(autouse=True)
def _nothing_on_stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield


@pytest.mark.parametrize(("flag", "text", "problem"), CASES)
def test_a_constraint_in_a_file_is_refused(
    flag: str,
    text: str,
    problem: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.gbnf").write_text(text)
    code = run(["generate", "-m", "/nonexistent.gguf", flag, "g.gbnf", "hello"])
    out, err = capfd.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert problem in err.splitlines()[0]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--regex", "(?=a)b"], "look-around"),
        (["--regex", "["], "unclosed character class"),
        (["--choice", "a", "--choice", "a"], "given twice"),
        (["--choice", ""], "empty"),
        (["--grammar", "/nonexistent/g.gbnf"], "/nonexistent/g.gbnf"),
        (["--schema", '{"a":'], "--schema:1:6"),
        (["--choice", "a\udcff"], "--choice: character 2 of 'a\\udcff' is the byte 0xff, which is no UTF-8"),
        (["--regex", "\udcff"], "--regex: character 1 of '\\udcff' is the byte 0xff, which is no UTF-8"),
        (["--schema", '{"const":"\udcff"}'], "--schema: character 11"),
        (["--schema", r'{"const":"\ud800"}'], "--schema: at /const: character 1"),
        (["--schema", '{"type":"string","minLength":1e18}'], "--schema: at /minLength: a length of 1e+18"),
        (["--schema", '{"const":1e400}'], "--schema: at /const: 1e400"),
    ],
)
def test_a_constraint_in_a_flag_is_refused(flags: list[str], problem: str, capfd: pytest.CaptureFixture[str]) -> None:
    code = run(["generate", "-m", "/nonexistent.gguf", *flags, "hello"])
    out, err = capfd.readouterr()
    assert code == 2
    assert out == ""
    assert problem in err.splitlines()[0]


def test_the_caret_stands_under_the_fault(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.gbnf").write_text('root ::= "a" | bar\n')
    run(["generate", "-m", "/nonexistent.gguf", "--grammar", "g.gbnf", "hello"])
    line, caret = capfd.readouterr().err.splitlines()[-2:]
    assert line[caret.index("^") :] == "bar"
