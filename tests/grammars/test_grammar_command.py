"""`localrun grammar`: lists, shows and checks without a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localrun.cli import grammar
from localrun.errors import ConstraintError, InputError, InvalidOutputError, UsageError


def test_ls_names_every_entry_with_its_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    grammar.ls()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 15
    assert any(line.split()[:2] == ["json", "grammar"] for line in lines)
    grammar.ls(json_output=True)
    entries = json.loads(capsys.readouterr().out)
    assert len(entries) == len(lines)
    assert {entry["kind"] for entry in entries} == {"grammar", "schema"}


def test_show_prints_the_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    grammar.show("yes-no")
    assert capsys.readouterr().out.endswith('root ::= "yes" | "no"\n')
    with pytest.raises(UsageError, match="no ready grammar 'yes-on'") as caught:
        grammar.show("yes-on")
    assert caught.value.hint == "did you mean yes-no?"


def test_check_tells_whether_a_file_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "g.gbnf"
    good.write_bytes('\ufeffroot ::= "ä" # ü\r\n'.encode())
    grammar.check(str(good))
    assert capsys.readouterr().out == f"{good}: valid\n"
    bad = tmp_path / "b.gbnf"
    bad.write_text('root ::= "a')
    with pytest.raises(ConstraintError, match=r"b\.gbnf:1:10"):
        grammar.check(str(bad))
    schema = tmp_path / "s.json"
    schema.write_text('{"type": "strng"}')
    with pytest.raises(ConstraintError, match="at /type"):
        grammar.check(str(schema))
    with pytest.raises(InputError):
        grammar.check(str(tmp_path / "missing.gbnf"))


def test_check_tells_where_a_text_stops_to_match(capsys: pytest.CaptureFixture[str]) -> None:
    grammar.check("json", '{"é": 1}')
    assert capsys.readouterr().out == "matches\n"
    with pytest.raises(InvalidOutputError, match="from character 8 on: '1}'") as caught:
        grammar.check("json", '{"é": 01}')
    assert str(caught.value.hint).endswith("       ^")
    with pytest.raises(InvalidOutputError, match="only the beginning"):
        grammar.check("json", '{"é": 1')


def test_check_warns_of_what_is_only_checked_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = tmp_path / "s.json"
    schema.write_text('{"type": "array", "items": {"type": "string"}, "uniqueItems": true}')
    with pytest.raises(ConstraintError, match="uniqueItems"):
        grammar.check(str(schema))
    schema.write_text('{"type": "string", "pattern": "^(?=a)"}')
    grammar.check(str(schema), '"ab"', lenient=True)
    assert "warning: at /pattern" in capsys.readouterr().err
    with pytest.raises(InvalidOutputError, match="violates the schema"):
        grammar.check(str(schema), '"b"', lenient=True)
