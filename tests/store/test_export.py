"""Sessions as files, and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from localrun.errors import InputError
from localrun.store import Attachment, Store, Tree, from_json, from_markdown, to_json, to_markdown

NASTY = (
    "<!-- localrun:user -->",
    "<!-- \\localrun:answer -->",
    "## You\n\ntext",
    "```\nfence\n````\n",
    "</details>\n\n<!-- localrun:answer -->",
    "ends with newlines\n\n\n",
    "\n\nbegins with newlines",
    "",
    "form\x0cfeed and \u2028 separators",
    "emoji 👩‍👩‍👧‍👦 and 日本",
    "# Title",
    "carriage\rreturn",
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "sessions.db")
    yield opened
    opened.close()


def nasty_session(store: Store) -> Tree:
    session = store.create_session({"system": "s"})
    parent: int | None = None
    for index, text in enumerate(NASTY):
        parent = store.add(session.id, parent, "user", text, attachments=[Attachment(f'a "{index}".txt', text)])
        writer = store.begin_answer(session.id, parent, {"model": {"name": "m"}, "seed": 3})
        writer.write(text, reasoning=text)
        writer.finish("stop")
        parent = writer.message_id
    store.add(session.id, None, "user", "another beginning")
    store.set_head(session.id, parent)
    store.rename(session.id, "Nasty")
    return store.tree(session.id)


def contents(tree: Tree) -> list[tuple[object, ...]]:
    return [(node.kind, node.text, node.reasoning, node.attachments) for node in tree.head_path]


def test_json_holds_the_whole_tree(store: Store) -> None:
    tree = nasty_session(store)
    again = from_json(to_json(tree))
    assert again.nodes == tree.nodes
    assert again.session == dataclasses.replace(tree.session, n_messages=0)


def test_an_imported_session_is_the_same_under_a_new_id(store: Store) -> None:
    tree = nasty_session(store)
    session = store.load(from_json(to_json(tree)))
    again = store.tree(session.id)
    assert session.id != tree.session.id
    assert contents(again) == contents(tree)
    assert len(again.nodes) == len(tree.nodes)
    assert store.check() == []


def test_markdown_brings_back_every_message_whatever_it_holds(store: Store) -> None:
    tree = nasty_session(store)
    again = from_markdown(to_markdown(tree.session, tree.head_path))
    assert contents(again) == contents(tree)
    assert again.session.name == "Nasty"


def test_markdown_survives_an_editor_of_windows() -> None:
    again = from_markdown("\ufeff# T\r\n\r\n## User\r\n\r\nhi\r\n\r\n## Assistant\r\n\r\nhello\r\n")
    assert [(node.kind, node.text) for node in again.head_path] == [("user", "hi"), ("assistant", "hello")]


def test_transcripts_of_other_programs_are_read_by_their_headings() -> None:
    again = from_markdown("**Human:**\nhi\n```\n## User\n```\n\n**Assistant:**\n\nhello\n")
    assert [(node.kind, node.text) for node in again.head_path] == [
        ("user", "hi\n```\n## User\n```"),
        ("assistant", "hello"),
    ]


def test_a_text_without_messages_is_refused() -> None:
    with pytest.raises(InputError, match=r"notes\.md holds no message"):
        from_markdown("# Notes\nnothing here", name="notes.md")


@pytest.mark.parametrize(
    "damage",
    [
        lambda document: document.pop("session"),
        lambda document: document["session"].update(surprise=1),
        lambda document: document["session"].update(head_id=99),
        lambda document: document["messages"][0].update(parent_id=1),
        lambda document: document["messages"][0].update(parent_id=77),
        lambda document: document["messages"][0].update(kind="robot"),
        lambda document: document["messages"][0]["segments"][0].update(text=5),
        lambda document: document["messages"][0].pop("segments"),
        lambda document: document["messages"].append(dict(document["messages"][0], id=5)),
        lambda document: document.update(version=99),
        lambda document: document.update(format="x"),
        lambda document: document.update(messages=None),
    ],
)
def test_a_damaged_export_is_refused_with_its_name(store: Store, damage: object) -> None:
    session = store.create_session({})
    store.add(session.id, None, "user", "hi")
    document = json.loads(to_json(store.tree(session.id)))
    damage(document)  # type: ignore[operator]
    with pytest.raises(InputError, match=r"^x\.json"):
        from_json(json.dumps(document), name="x.json")


@pytest.mark.parametrize("text", ["", "[1]", "null", "{", "7"])
def test_json_that_is_no_session_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^x\.json"):
        from_json(text, name="x.json")
