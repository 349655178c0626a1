"""The form of a template's tool calls, found out by asking it.

A conversation in which known tools are called with known arguments is rendered; what stands around them is the form.
Knows renderings; knows no engine and no model. Invariant: a form is used only if the template shows the tools to the
model; a form that would be guessed is none, and the reason is said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from localrun.chat.reasoning import ReasoningFormat
from localrun.errors import TemplateError
from localrun.serve.marked_text import (
    MARKER,
    before_marker,
    common_beginning,
    common_end,
    first_piece,
    n_common,
    numbered,
)
from localrun.serve.tool_form import BARE, GRANITE, HERMES, ID, KEY, LFM, NAME, KeyedArguments, ToolForm, filled

_FIRST, _SECOND = "zq_first_tool", "zq_second_tool"
_TEXT_KEY, _NUMBER_KEY, _TEXT, _OTHER_TEXT, _NUMBER = "zqa_key", "zqb_key", "Zqtext", "Zqother", 70417
_IDS = ("zq9call01", "zq9call02")  # Mistral's templates want nine letters and digits
_MARKED_TEXT = "<Zq&>"
_ASKED, _ANSWERED = "Zqask.", "Zqanswer."
_ONE = {_TEXT_KEY: _TEXT, _NUMBER_KEY: _NUMBER}
_TWO = {_TEXT_KEY: _OTHER_TEXT}


class NoToolFormError(Exception):
    """Why a template has no form of calls that could be used here."""


class Template(Protocol):
    """What is asked of a chat template."""

    @property
    def source(self) -> str: ...

    @property
    def reasoning(self) -> ReasoningFormat | None: ...

    def text(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str: ...


def tool_form(template: Template) -> ToolForm:
    """How a model with this template writes calls. Raises `NoToolFormError`."""
    probe = _Probe(template)
    asked = probe.render()
    if asked is None:
        raise NoToolFormError(f"it cannot be asked: {probe.problem}")
    if _FIRST not in asked:
        raise NoToolFormError("it shows no tools")
    two, one = probe.calls(_ONE, _TWO), probe.calls(_ONE)
    turn = two if two is not None and _SECOND in _added(two, asked) else one
    if turn is None:
        raise NoToolFormError(f"it cannot be asked: {probe.problem}")
    added = _added(turn, asked)
    if _FIRST not in added:
        if form := _told_in_words(template.source):
            return form
        raise NoToolFormError("it writes no calls")
    added = _without_reasoning(added, template.reasoning)
    form = _form(added, probe)
    return _with_tag(_with_joint(form, probe, template.reasoning), probe)


class _Probe:
    """Renderings of one template with two tools."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self.problem: TemplateError | None = None
        """What the template said the last time that it refused."""

    def render(self, *messages: Mapping[str, Any], generate: bool = True) -> str | None:
        """A user's question and these messages; None where the template refuses."""
        asked = [{"role": "user", "content": _ASKED}, *messages]
        tools = [_tool(_FIRST), _tool(_SECOND)]
        try:
            return self._template.text(asked, add_generation_prompt=generate, tools=tools)
        except TemplateError as error:
            self.problem = error
            return None

    def calls(self, *arguments: Mapping[str, Any], content: str = "") -> str | None:
        """A turn that calls the tools, with objects as arguments, else with their text."""
        for write in (dict, json.dumps):
            calls = [
                {"id": id_, "type": "function", "function": {"name": name, "arguments": write(values)}}
                for id_, name, values in zip(_IDS, (_FIRST, _SECOND), arguments, strict=False)
            ]
            turn = self.render({"role": "assistant", "content": content, "tool_calls": calls}, generate=False)
            if turn is not None:
                return turn
        return None


def _tool(name: str) -> dict[str, Any]:
    properties = {
        _TEXT_KEY: {"type": "string", "description": "d"},
        _NUMBER_KEY: {"type": "integer", "description": "d"},
    }
    parameters = {"type": "object", "properties": properties, "required": [_TEXT_KEY]}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}


def _told_in_words(source: str) -> ToolForm | None:
    """A form that the template's own words ask for."""
    if "<tool_call>" in source and "<function=" not in source and "<arg_key>" not in source:
        return HERMES
    if "<|tool_call|> followed by a JSON list" in source:
        return GRANITE
    if "<|tool_list_start|>" in source or "List of tools: [" in source:
        return LFM
    if '"parameters"' in source and "<|eot_id|>" in source:
        return BARE
    return None


def _added(turn: str, asked: str) -> str:
    """What a turn adds to the prompt that asks for it."""
    start = n_common(turn, asked)
    if start == len(asked):
        return turn[start:]
    added = turn[before_marker(turn, start) :]
    overlap = next((n for n in range(min(len(added), len(asked)), 0, -1) if asked.endswith(added[:n])), 0)
    return added[overlap:]


def _without_reasoning(added: str, reasoning: ReasoningFormat | None) -> str:
    tag = reasoning.close_tag if reasoning is not None else ""
    before, found, after = added.partition(tag) if tag else (added, "", "")
    added = after if found and _FIRST not in before else added
    # The model, or the end of its reasoning, has made the line breaks before.
    return added.lstrip("\n")


def _form(added: str, probe: _Probe) -> ToolForm:
    for id_ in _IDS:
        added = added.replace(id_, ID)
    before, _, after = added.partition(_FIRST)
    first, found, second = after.partition(_SECOND)
    if not found:
        return _single(before, after)
    calls = _objects(first, second)
    keyed = None
    if calls is None:
        keyed, calls = _one_by_one(first, second, probe)
    mid = numbered(calls[0].mid.replace(_FIRST, NAME), calls[1].mid.replace(_SECOND, NAME))
    if mid is None:
        raise NoToolFormError("it writes its second call differently from its first")
    last = calls[1].rest
    head = common_end(before, calls[0].rest)
    section, after_one = before[: len(before) - len(head)], calls[0].rest[: len(calls[0].rest) - len(head)]
    tail = common_beginning(after_one, last)
    between, last = after_one[len(tail) :], last[len(tail) :]
    end = ""
    if section.strip():  # as much of the end as tells it from another call
        shared = common_beginning(last, between + head)
        end = shared + first_piece(last[len(shared) :])
    form = ToolForm(None, section, head, mid, tail, between, end, keyed=keyed)
    _check_whole(form, added, calls)
    return form


def _check_whole(form: ToolForm, added: str, calls: tuple[_Call, _Call]) -> None:
    """What was taken apart, put together again, is what the template wrote."""
    text = ""
    for i, (name, call) in enumerate(zip((_FIRST, _SECOND), calls, strict=True)):
        opening = filled((form.between if i else form.section) + form.head, index=i, id_=ID)
        text += opening + name + form.after_name(i, ID, name) + call.written + form.ending(i, ID, name)
    if not added.startswith(text):
        raise NoToolFormError("it writes calls in a way that is not known here")


@dataclass(frozen=True, slots=True)
class _Call:
    """What was found behind a name."""

    mid: str
    written: str
    """The arguments."""
    rest: str
    """What follows the arguments."""


def _single(before: str, after: str) -> ToolForm:
    """A template that writes one call an answer."""
    call = _object(after, _ONE)
    if call is None:
        raise NoToolFormError("it writes arguments in a way that is not known here")
    return ToolForm(None, "", before, call.mid.replace(_FIRST, NAME), "", several=False)


def _objects(first: str, second: str) -> tuple[_Call, _Call] | None:
    """Two calls whose arguments are JSON objects."""
    one, two = _object(first, _ONE), _object(second, _TWO)
    return None if one is None or two is None else (one, two)


def _object(text: str, arguments: Mapping[str, Any]) -> _Call | None:
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", text):
        try:
            found, end = decoder.raw_decode(text, match.start())
        except ValueError:
            continue
        if found == arguments:
            return _Call(text[: match.start()], text[match.start() : end], text[end:])
    return None


def _one_by_one(first: str, second: str, probe: _Probe) -> tuple[KeyedArguments, tuple[_Call, _Call]]:
    """Two calls whose arguments are written one by one: a text and a number, and a text alone."""
    one = _split(first, _TEXT_KEY, _TEXT, _NUMBER_KEY, str(_NUMBER))
    two = _split(second, _TEXT_KEY, _OTHER_TEXT)
    if one is None or two is None:
        raise NoToolFormError("it writes arguments in a way that is not known here")
    mid, text_open, inside, json_open, after_number = one
    after_text = two[2].replace(_TEXT_KEY, KEY)
    inside, after_number = inside.replace(_TEXT_KEY, KEY), after_number.replace(_NUMBER_KEY, KEY)
    text_close = common_beginning(inside, after_text)
    inside, rest = inside[len(text_close) :], after_text[len(text_close) :]
    key_open = common_end(mid, inside)
    json_close = text_close
    if not after_number.startswith(text_close):
        json_close = after_number[: after_number.find(rest[:1])]
    form = KeyedArguments(
        key_open, text_open, text_close, json_open, json_close, join=inside[: len(inside) - len(key_open)]
    )
    if text_open[-1:] in ("'", '"') and text_close[:1] == text_open[-1]:
        form = replace(form, text_open=json_open, text_close=json_close, quoted=True)
    _check_types(probe, form)
    form = replace(form, cdata=f"<![CDATA[{_MARKED_TEXT}]]>" in (probe.calls({_TEXT_KEY: _MARKED_TEXT}) or ""))
    texts = [
        filled(f"{key_open}{_TEXT_KEY}{text_open}{text}{text_close}", key=_TEXT_KEY) for text in (_TEXT, _OTHER_TEXT)
    ]
    number = filled(f"{form.join}{key_open}{_NUMBER_KEY}{json_open}{_NUMBER}{json_close}", key=_NUMBER_KEY)
    return form, (
        _Call(mid[: len(mid) - len(key_open)], texts[0] + number, after_number[len(json_close) :]),
        _Call(two[0][: len(two[0]) - len(key_open)], texts[1], rest),
    )


def _split(text: str, *parts: str) -> list[str] | None:
    """What stands around these parts."""
    around = []
    for part in parts:
        before, found, text = text.partition(part)
        if not found:
            return None
        around.append(before)
    return [*around, text]


def _check_types(probe: _Probe, form: KeyedArguments) -> None:
    """Some templates name the type of each argument: which one it will be is not known before it is written."""
    for value in (True, [_NUMBER], {_TEXT_KEY: _NUMBER}, None):
        turn = probe.calls({_NUMBER_KEY: value}) or ""
        _, _, written = turn.rpartition(form.key_open + _NUMBER_KEY)
        if value is not None and not written.startswith(filled(form.json_open, key=_NUMBER_KEY)):
            raise NoToolFormError("it writes each type of argument in a way of its own")


def _with_joint(form: ToolForm, probe: _Probe, reasoning: ReasoningFormat | None) -> ToolForm:
    """Find what ends a text before a call, where each part of an answer has a header."""
    if reasoning is None or not reasoning.answer_header:
        return form
    turn = probe.calls(_ONE, _TWO, content=_ANSWERED) or probe.calls(_ONE, content=_ANSWERED) or ""
    _, found, after = turn.rpartition(_ANSWERED)
    joint, opens, _ = after.partition(form.opening(0, _IDS[0], first=True))
    return replace(form, joint=joint) if found and opens else form


def _with_tag(form: ToolForm, probe: _Probe) -> ToolForm:
    """Find the first piece of a call that no answer has."""
    opening = re.split(r"[\[{]\s*(?:[\"{\[]|$)", form.section + form.head, maxsplit=1)[0].strip()
    answer = {"role": "assistant", "content": _ANSWERED}
    turn = probe.render(answer, {"role": "user", "content": _ASKED}) or ""
    _, _, plain = turn[: turn.rfind(_ASKED)].rpartition(_ASKED)
    ends = [match.end() for match in MARKER.finditer(opening)]
    tag = next((opening[:end] for end in [*ends, len(opening)] if end and opening[:end] not in plain), None)
    return replace(form, tag=tag)
