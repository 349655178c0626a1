"""The templates that models ship, rendered as their authors meant: those of the engine's source archive."""

from __future__ import annotations

import ast
import re
from datetime import datetime
from pathlib import Path

import pytest

from localrun.chat.messages import Message
from localrun.chat.template import ChatTemplate
from localrun.errors import TemplateError
from tests.sdist import sdist_root

CONVERSATION = (
    Message("system", "You are a helpful assistant"),
    Message("user", "Hello"),
    Message("assistant", "Hi there"),
    Message("user", "Who are you"),
    Message("assistant", "   I am an assistant   "),
    Message("user", "Another question"),
)

# Templates of special purpose that cannot be rendered without what a plain conversation has not.
OWN_ERRORS = {"fireworks-ai-llama-3-firefunction-v2": "'functions' is undefined"}

STRING = r'"(?:\\.|[^"\\])*"'
FIELD = re.compile(rf"/\* \.(\w+)=? \*/\s*(?:U8C\()?((?:u8)?{STRING}|true|false|\{{.*\}})")
TURN = re.compile(rf"\{{({STRING}), ({STRING})\}}")


def templates() -> list[Path]:
    return sorted((sdist_root() / "models" / "templates").glob("*.jinja"))


def text_of(literal: str) -> str:
    return str(ast.literal_eval(literal.removeprefix("u8"))) if '"' in literal else literal


def expected_renderings() -> list[dict[str, str]]:
    """The engine's own table of templates and results."""
    source = (sdist_root() / "tests" / "test-chat-template.cpp").read_text(encoding="utf-8")
    cases: list[dict[str, str]] = []
    for key, value in FIELD.findall(source):
        if key == "name":
            cases.append({})
        if cases:  # else a template in a comment
            cases[-1][key] = value
    return [case for case in cases if case.get("supported_with_jinja") != "false"]


def test_all_seventy_templates_are_there() -> None:
    assert len(templates()) == 70
    assert len(expected_renderings()) >= 35


def test_every_template_renders_a_conversation_or_says_what_it_lacks() -> None:
    for path in templates():
        template = ChatTemplate(
            path.read_text(encoding="utf-8"), bos_token="<s>", eos_token="</s>", name=path.stem, clock=datetime.now
        )
        if path.stem in OWN_ERRORS:
            with pytest.raises(TemplateError, match=OWN_ERRORS[path.stem]):
                template.render(CONVERSATION)
            continue
        prompt = template.render(CONVERSATION)
        position = 0
        for message in CONVERSATION:
            assert message.content.strip() in prompt.text, path.stem
        assert prompt.spans is not None, path.stem
        for start, end in prompt.spans:
            assert position <= start < end, path.stem
            position = end
        traced = [prompt.text[start:end].strip() for start, end in prompt.spans]
        assert all(any(message.content.strip() in text for text in traced) for message in CONVERSATION), path.stem
        assert "".join(text for text, _ in prompt.segments) == prompt.text


def test_renderings_equal_those_that_the_engine_expects() -> None:
    for case in expected_renderings():
        source, bos, eos, without_jinja, with_jinja = (
            text_of(case.get(key, '""'))
            for key in ("template_str", "bos_token", "eos_token", "expected_output", "expected_output_jinja")
        )
        template = ChatTemplate(source, bos_token=bos, eos_token=eos)
        prompt = template.render(CONVERSATION)
        text, expected = prompt.text, with_jinja or without_jinja
        if turns := TURN.findall(case.get("extra_conversation", "")):
            told = [{"role": m.role, "content": m.content} for m in CONVERSATION]
            told += [{"role": text_of(role), "content": text_of(content)} for role, content in turns]
            text = template.text(told, add_generation_prompt=True)
        if prompt.notices:  # the engine puts one line break after a system text that it moves
            expected = expected.replace("You are a helpful assistant\nHello", "You are a helpful assistant\n\nHello")
        assert text == expected, case["name"]


def test_dates_come_from_the_clock() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", clock=lambda: datetime(2026, 3, 5))
    assert template.render([Message("user", "x")]).text == "05 Mar 2026"
