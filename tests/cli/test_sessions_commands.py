"""`localrun sessions` as a user of the shell sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from localrun.cli.sessions import commands
from localrun.errors import InputError, UsageError
from localrun.paths import default_paths
from localrun.store import Store

runner = CliRunner()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALRUN_HOME", str(tmp_path))
    return tmp_path


def run(*arguments: str, code: int = 0) -> str:
    app = typer.Typer()
    for name, function in commands.items():
        app.command(name)(function)
    result = runner.invoke(app, list(arguments), catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def make(*texts: str, name: str = "Tides") -> str:
    store = Store.open(default_paths().sessions_db)
    session = store.create_session({})
    parent: int | None = None
    for index, text in enumerate(texts):
        parent = store.add(session.id, parent, "user" if index % 2 == 0 else "assistant", text)
    store.rename(session.id, name)
    store.close()
    return session.id


def test_chats_are_listed_with_id_and_name() -> None:
    assert run("ls") == ""
    session = make("How do tides work?")
    line = run("ls")
    assert line.startswith(session)
    assert line.endswith("1  Tides\n")
    assert json.loads(run("ls", "--json"))["id"] == session


def test_search_prints_where_to_go_on() -> None:
    session = make("How do tides work?", "The moon pulls the water.")
    assert run("search", "moon").splitlines() == [
        f"{session}:2    Tides",
        "            The moon pulls the water.",
    ]
    assert json.loads(run("search", "moon", "--json"))["number"] == 2
    assert run("search", "sun", code=1) == ""


def test_show_prints_the_branch_and_the_tree() -> None:
    session = make("q", "a")
    assert "## You" in run("show", session)
    assert run("show", "last", "--tree").splitlines() == [">   1 user: q", ">   2 assistant: a"]


def test_the_tree_shows_branches_indented() -> None:
    session = make("q", "a", "more")
    store = Store.open(default_paths().sessions_db)
    question = store.tree(session).head_path[0].id
    store.add(session, question, "assistant", "b")
    store.close()
    assert run("show", session, "--tree").splitlines() == [
        ">   1 user: q",
        "    2 assistant: a",
        "    3   user: more",
        ">   4 assistant: b",
    ]


@pytest.mark.parametrize("suffix", [".md", ".json"])
def test_what_is_exported_can_be_imported(home: Path, suffix: str) -> None:
    session = make("q <b> [x] \x1b[0m", "a")
    target = home / f"out{suffix}"
    run("export", session, "-o", str(target))
    new = run("import", str(target)).strip()
    store = Store.open(default_paths().sessions_db)
    assert [node.text for node in store.tree(new).head_path] == ["q <b> [x] \x1b[0m", "a"]
    store.close()
    with pytest.raises(InputError, match="exists"):
        run("export", session, "-o", str(target))


def test_the_last_chat_is_the_one_that_was_talked_in_and_not_its_imported_copy(home: Path) -> None:
    session = make("q", "a")
    run("export", session, "-o", str(home / "copy.json"))
    copy = run("import", str(home / "copy.json")).strip()
    run("rm", "last")
    assert [line.split()[0] for line in run("ls").splitlines()] == [copy]


def test_a_failed_import_stores_nothing(home: Path) -> None:
    (home / "good.md").write_text("## User\n\nhi\n")
    (home / "bad.md").write_text("nothing")
    with pytest.raises(InputError, match=r"bad\.md"):
        run("import", str(home / "good.md"), str(home / "bad.md"))
    with pytest.raises(InputError, match=r"missing\.md"):
        run("import", str(home / "missing.md"))
    assert run("ls") == ""


def test_rm_is_undone_by_restore_and_only_forever_is_forever() -> None:
    session = make("q")
    run("rm", session)
    assert run("ls") == ""
    assert run("ls", "--trash").startswith(session)
    run("restore", session)
    assert run("ls").startswith(session)
    run("rm", "--forever", session)
    assert run("ls") == run("ls", "--trash") == ""


def test_nothing_is_removed_if_one_name_is_wrong() -> None:
    session = make("q")
    with pytest.raises(UsageError, match="zzzz"):
        run("rm", session, "zzzz")
    assert run("ls").startswith(session)


def test_pin_rename_and_check() -> None:
    session = make("q")
    run("pin", session)
    run("rename", session, "New name")
    assert " * " in run("ls")
    assert "New name" in run("ls")
    run("pin", "--off", session)
    assert " * " not in run("ls")
    assert run("check").endswith("sessions.db: sound\n")
