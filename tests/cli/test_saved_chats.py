"""What the commands for saved chats tell the user, beside what he asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from localrun.cli.sessions import commands
from localrun.paths import default_paths
from localrun.store import Store


def run(*arguments: str) -> tuple[str, str]:
    """What a command writes to stdout and to stderr."""
    app = typer.Typer()
    for name, function in commands.items():
        app.command(name)(function)
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A saved chat of three messages."""
    monkeypatch.setenv("LOCALRUN_HOME", str(tmp_path))
    store = Store.open(default_paths().sessions_db)
    made = store.create_session({})
    parent: int | None = None
    for kind, text in [("user", "About tides"), ("assistant", "The moon."), ("user", "Which tides?")]:
        parent = store.add(made.id, parent, kind, text)
    store.rename(made.id, "About tides")
    store.close()
    return made.id


def test_what_changes_a_chat_says_so_in_one_line(session: str) -> None:
    assert run("pin", session) == ("", f"pinned: {session}  About tides\n")
    assert run("pin", "--off", session) == ("", f"unpinned: {session}  About tides\n")
    assert run("rename", session, "Sea") == ("", f"renamed: {session}  Sea\n")
    undo = f"(`localrun sessions restore {session}` undoes it)"
    assert run("rm", session) == ("", f"moved to the trash: {session}  Sea {undo}\n")
    assert run("restore", session) == ("", f"brought back: {session}  Sea\n")
    assert run("rm", "--forever", session) == ("", f"deleted for good: {session}  Sea\n")


def test_an_export_says_where_it_went_and_is_silent_on_stdout(session: str, tmp_path: Path) -> None:
    target = tmp_path / "out.md"
    assert run("export", session, "-o", str(target)) == (
        "",
        f"wrote {target}: {session}  About tides (3 messages)\n",
    )
    assert run("export", session) == (target.read_text(), "")


def test_a_search_names_a_chat_once_and_every_place_in_it(session: str) -> None:
    out, _ = run("search", "tides")
    lines = out.splitlines()
    assert len(lines) == 3
    assert lines[0].endswith(" About tides")
    assert sorted(line[:11].strip() for line in lines) == ["", f"{session}:1", f"{session}:3"]


def test_a_chat_is_found_by_its_name_when_no_message_holds_the_word(session: str) -> None:
    run("rename", session, "Holiday plans")
    assert run("search", "holiday")[0] == f"{session:<11} Holiday plans\n"
