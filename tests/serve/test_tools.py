"""Calls of tools: asked for when the model begins one, read while they stream, valid by construction."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import openai
import pytest
from localrun.serve.tool_format import BARE, HERMES, CallReader, call_constraint, tool_format

from localrun.chat.template import ChatTemplate
from localrun.responder import Request
from tests.serve.conftest import Server
from tests.serve.scripted_model import TEMPLATE

Start = Callable[..., Server]
ASK = [{"role": "user", "content": "Weather?"}]


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}


TOOLS = [tool("weather", city={"type": "string"}), tool("time")]
CALL = '{"name":"weather","arguments":{"city":"Zürich {}"}}'


def script(*answers: str) -> Callable[[Request], str]:
    """Each step of the answer in turn."""
    left = list(answers)
    return lambda request: left.pop(0)


def test_the_model_may_call_and_its_call_is_constrained(server: Start) -> None:
    running = server(script("Let me see.\n<tool_call>\n", CALL, "\n"))
    create = running.client().chat.completions.create
    [choice] = create(model="tiny", messages=ASK, tools=TOOLS).choices  # type: ignore[call-overload]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see.\n"
    [call] = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Zürich {}"})
    first, second, third = running.model.requests
    assert "<tool_call>" in first.params.stop
    assert first.params.constraint is None
    assert second.prefill == "Let me see.\n<tool_call>\n"
    assert second.params.constraint is not None
    assert third.prefill == f"Let me see.\n<tool_call>\n{CALL}\n</tool_call>"


def test_several_calls_stream_in_pieces(server: Start) -> None:
    other = '{"name":"time","arguments":{}}'
    running = server(script("<tool_call>", CALL, "\n<tool_call>", other, ""))
    stream = running.client().chat.completions.create(model="tiny", messages=ASK, tools=TOOLS, stream=True)  # type: ignore[call-overload]
    calls: dict[int, list[str]] = {}
    finish, content = None, ""
    for chunk in stream:
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            content += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                entry = calls.setdefault(call.index, ["", ""])
                entry[0] += call.function.name or ""
                entry[1] += call.function.arguments or ""
    assert finish == "tool_calls"
    assert content == ""
    assert {i: (name, json.loads(text)) for i, (name, text) in calls.items()} == {
        0: ("weather", {"city": "Zürich {}"}),
        1: ("time", {}),
    }


def test_without_parallel_calls_the_first_one_is_the_last(server: Start) -> None:
    running = server(script("<tool_call>", CALL))
    create = running.client().chat.completions.create
    answer = create(model="tiny", messages=ASK, tools=TOOLS, parallel_tool_calls=False)  # type: ignore[call-overload]
    assert len(answer.choices[0].message.tool_calls) == 1
    assert len(running.model.requests) == 2


def test_a_call_can_be_demanded(server: Start) -> None:
    running = server(script('{"name":"time","arguments":{}}', '{"name":"time","arguments":{}}'))
    create = running.client().chat.completions.create
    for choice in ("required", {"type": "function", "function": {"name": "time"}}):
        answer = create(model="tiny", messages=ASK, tools=TOOLS, tool_choice=choice)  # type: ignore[call-overload]
        assert answer.choices[0].finish_reason == "tool_calls"
        assert answer.choices[0].message.content is None
    either, named = (json.loads(str(r.params.constraint.source)) for r in running.model.requests if r.params.constraint)
    assert len(either["anyOf"]) == 2
    assert named["properties"]["name"] == {"const": "time"}


def test_tools_that_may_not_be_called_are_not_shown(server: Start) -> None:
    running = server(script("No."))
    answer = running.client().chat.completions.create(model="tiny", messages=ASK, tools=TOOLS, tool_choice="none")  # type: ignore[call-overload]
    assert answer.choices[0].message.content == "No."
    assert running.model.requests[0].tools == ()


def test_an_answer_without_a_call_is_an_answer(server: Start) -> None:
    running = server(script("It is <tool> sunny."))
    answer = running.client().chat.completions.create(model="tiny", messages=ASK, tools=TOOLS)  # type: ignore[call-overload]
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("It is <tool> sunny.", "stop")


def test_a_call_that_is_cut_by_the_limit_says_so(server: Start) -> None:
    running = server(script("<tool_call>", CALL))
    answer = running.client().chat.completions.create(model="tiny", messages=ASK, tools=TOOLS, max_tokens=30)  # type: ignore[call-overload]
    assert answer.choices[0].finish_reason == "length"


def test_a_template_without_tools_is_said(server: Start) -> None:
    running = server()
    running.model.template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(openai.BadRequestError, match="knows no tools"):
        running.client().chat.completions.create(model="tiny", messages=ASK, tools=TOOLS)  # type: ignore[call-overload]


def test_forms_are_told_from_templates() -> None:
    assert tool_format(ChatTemplate(TEMPLATE)) is HERMES
    assert tool_format(ChatTemplate("{{ messages[0].content }}<tool_call>")) is None, "it does not show the tools"
    llama = '{{ tools }} Respond with {"name": n, "parameters": p}<|eot_id|>{{ messages[0].content }}'
    assert tool_format(ChatTemplate(llama.replace("{{ tools }}", "{{ tools | tojson }}"))) is BARE
    unknown = "{% if tools %}{{ tools | tojson }}{% endif %}{{ messages[0].content }}"
    assert tool_format(ChatTemplate(unknown)) is None


def test_references_of_a_schema_follow_it() -> None:
    tree = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}, "leaf": {"$ref": "#/$defs/leaf"}},
        "$defs": {"leaf": {"enum": ["x", {"$ref": "#/not/a/reference"}]}},
        "required": ["leaf"],
    }
    functions = [{"name": "a", "parameters": {"type": "object"}}, {"name": "b", "parameters": tree}]
    schema = json.loads(str(call_constraint(HERMES, functions).source))
    check = jsonschema.Draft202012Validator(schema)
    assert check.is_valid({"name": "b", "arguments": {"leaf": "x", "kids": [{"leaf": "x"}]}})
    assert not check.is_valid({"name": "b", "arguments": {"leaf": "x", "kids": [{"leaf": "y"}]}})
    assert not check.is_valid({"name": "c", "arguments": {}})


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_call_is_read_alike_however_it_is_cut(size: int) -> None:
    text = ' { "name" : "a\\"b" , "arguments" : {"x": {"y": "}"}} } '
    reader = CallReader(HERMES)
    pieces = [piece for i in range(0, len(text), size) for piece in reader.push(text[i : i + size])]
    assert reader.name == 'a"b'
    assert "".join(pieces) + reader.finish() == '{"x": {"y": "}"}}'
