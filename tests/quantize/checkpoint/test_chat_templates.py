"""A chat template is found wherever a checkpoint keeps it, and none is made up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quantize.errors import SourceError
from quantize.source import open_source
from tests.quantize.checkpoint.conftest import Folder

KEY = "tokenizer.chat_template"
TWO = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]


def templates(folder: Folder) -> dict[str, Any]:
    return {k: v.value for k, v in open_source(folder.path).metadata.items() if k.startswith(KEY)}


@pytest.fixture
def bare(folder: Folder) -> Folder:
    (folder / "chat_template.jinja").unlink()
    return folder


def test_from_the_tokenizer_configuration(bare: Folder) -> None:
    bare.edit("tokenizer_config.json", lambda config: config.update(chat_template="C"))
    assert templates(bare) == {KEY: "C"}


def test_from_its_own_file(bare: Folder) -> None:
    (bare / "chat_template.jinja").write_text("Jäger {{ x }}", encoding="utf-8")
    assert templates(bare) == {KEY: "Jäger {{ x }}"}


def test_its_own_file_wins(bare: Folder) -> None:
    bare.edit("tokenizer_config.json", lambda config: config.update(chat_template="C"))
    (bare / "chat_template.jinja").write_text("J")
    assert templates(bare) == {KEY: "J"}


def test_a_list_of_named_templates(bare: Folder) -> None:
    bare.edit("tokenizer_config.json", lambda config: config.update(chat_template=TWO))
    assert templates(bare) == {KEY: "D", f"{KEY}.tool_use": "T", f"{KEY}s": ["tool_use"]}


def test_a_list_without_a_default_writes_none(bare: Folder) -> None:
    bare.edit("tokenizer_config.json", lambda config: config.update(chat_template=TWO[1:]))
    assert templates(bare) == {f"{KEY}.tool_use": "T", f"{KEY}s": ["tool_use"]}


def test_from_the_processors_file(bare: Folder) -> None:
    (bare / "chat_template.json").write_text(json.dumps({"chat_template": "P"}))
    assert templates(bare) == {KEY: "P"}
    bare.edit("tokenizer_config.json", lambda config: config.update(chat_template="C"))
    assert templates(bare) == {KEY: "C"}


def test_additional_templates_beside_the_file(bare: Folder) -> None:
    (bare / "chat_template.jinja").write_text("J")
    (bare / "additional_chat_templates").mkdir()
    (bare / "additional_chat_templates" / "rag-2.jinja").write_text("R")
    assert templates(bare) == {KEY: "J", f"{KEY}.rag_2": "R", f"{KEY}s": ["rag_2"]}


def test_a_base_model_has_none(bare: Folder) -> None:
    assert templates(bare) == {}


@pytest.mark.parametrize("value", [5, {"a": "b"}, [5], [{"name": "default"}]])
def test_a_value_of_another_kind_is_none(bare: Folder, value: object) -> None:
    bare.edit("tokenizer_config.json", lambda config: config.update(chat_template=value))
    assert templates(bare) == {}


def test_a_file_that_is_no_text_is_refused(bare: Folder) -> None:
    (bare / "chat_template.jinja").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SourceError, match=r"chat_template\.jinja"):
        open_source(bare.path)
