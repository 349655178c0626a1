"""An exported session that somebody has edited is loaded, or refused as wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localrun.errors import InputError
from localrun.store import Attachment, Store, from_json, from_markdown, read_session_file, to_json, to_markdown
from tests.odd_values import variants


def test_every_field_of_an_export_may_hold_anything(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "sessions.db")
    session = store.create_session({"system": "s"})
    question = store.add(session.id, None, "user", "Hi", attachments=[Attachment("a.txt", "text")])
    store.add(session.id, question, "assistant", "Ho", facts={"model": {"name": "m"}})
    document = json.loads(to_json(store.tree(session.id)))
    store.close()
    store = Store.open(tmp_path / "copies.db")
    store._database._connection.execute("PRAGMA synchronous = OFF")  # hundreds of copies
    for number, variant in enumerate(variants(document)):
        try:
            loaded = store.load(from_json(json.dumps(variant)))
        except InputError:
            continue
        tree = store.tree(loaded.id)
        (tmp_path / f"{number}.md").write_text(to_markdown(tree.session, tree.head_path), "utf-8", "replace")
        from_json(to_json(tree))
    store.close()


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"format":"localrun session","version":1,"session":{"settings":['])
def test_a_file_that_is_nested_too_deeply_is_wrong_input(tmp_path: Path, opening: str) -> None:
    file = tmp_path / "deep.json"
    file.write_text(opening * 200_000)
    with pytest.raises(InputError, match=r"deep\.json"):
        read_session_file(file)


@pytest.mark.parametrize("rest", ["", "```", "```\ntext"])
def test_an_attachment_without_an_end_is_wrong_input(rest: str) -> None:
    with pytest.raises(InputError, match="message 1 holds a file that has no end"):
        from_markdown(f'# T\n\n<!-- localrun:user -->\n## You\n\n<!-- localrun:file "a" -->\n{rest}')
