"""Calls of tools: asked for when the model begins one, read while they stream, valid by construction."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import openai
import pytest

from localrun.chat.template import ChatTemplate
from localrun.responder import Request
from localrun.serve.tool_arguments import parameters_of
from localrun.serve.tool_form import BARE, GRANITE, HERMES
from localrun.serve.tool_probe import NoToolFormError, tool_form
from tests.serve.conftest import Server
from tests.serve.scripted_model import TEMPLATE

Start = Callable[..., Server]
ASK = [{"role": "user", "content": "Weather?"}]


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}


TOOLS = [tool("weather", city={"type": "string"}), tool("time")]
# A call in steps: the tool (what follows its name tells it from a longer one), then the arguments.
WEATHER = ('weather",', '{"city":"Zürich {}"}')
TIME = ('time",', "{}")
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city":"Zürich {}"}}\n</tool_call>'


def script(*answers: str) -> Callable[[Request], str]:
    """Each step of the answer in turn."""
    left = list(answers)
    return lambda request: left.pop(0)


def test_the_model_may_call_and_its_call_is_constrained(server: Start) -> None:
    running = server(script("Let me see.\n<tool_call>\n", *WEATHER, "\n"))
    create = running.client().chat.completions.create
    [choice] = create(model="tiny", messages=ASK, tools=TOOLS).choices  # type: ignore[call-overload]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see.\n"
    [call] = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Zürich {}"})
    first, second, third, fourth = running.model.requests
    assert first.tags == ("<tool_call>",)
    assert first.params.constraint is None
    assert second.prefill == 'Let me see.\n<tool_call>\n{"name": "'
    assert second.params.constraint is not None
    assert second.params.constraint.source == ('weather",', 'time",')
    assert third.params.constraint is not None
    assert json.loads(str(third.params.constraint.source)) == TOOLS[0]["function"]["parameters"]
    assert fourth.prefill == f"Let me see.\n{CALL}"


def test_only_what_the_template_writes_may_hold_special_tokens(server: Start) -> None:
    running = server(script("<|im_end|>\n<tool_call>", *WEATHER, ""))
    running.client().chat.completions.create(model="tiny", messages=ASK, tools=TOOLS)  # type: ignore[call-overload]
    last = running.model.requests[-1]
    own = [last.prefill[start:end] for start, end in last.prefill_markup]
    assert own == ['<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>"]


def test_what_belongs_to_a_call_is_never_taken_for_reasoning(server: Start) -> None:
    running = server(script("<tool_call>", *WEATHER, ""))
    running.client().chat.completions.create(model="tiny", messages=ASK, tools=TOOLS)  # type: ignore[call-overload]
    assert [request.verbatim for request in running.model.requests] == [False, True, True, False]


def test_several_calls_stream_in_pieces(server: Start) -> None:
    running = server(script("<tool_call>", *WEATHER, "\n<tool_call>", *TIME, ""))
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
    running = server(script("<tool_call>", *WEATHER))
    create = running.client().chat.completions.create
    answer = create(model="tiny", messages=ASK, tools=TOOLS, parallel_tool_calls=False)  # type: ignore[call-overload]
    assert len(answer.choices[0].message.tool_calls) == 1
    assert len(running.model.requests) == 3


def test_a_call_can_be_demanded(server: Start) -> None:
    running = server(script(*TIME, "{}"))
    create = running.client().chat.completions.create
    for choice in ("required", {"type": "function", "function": {"name": "time"}}):
        answer = create(model="tiny", messages=ASK, tools=TOOLS, tool_choice=choice)  # type: ignore[call-overload]
        assert answer.choices[0].finish_reason == "tool_calls"
        assert answer.choices[0].message.content is None
        assert answer.choices[0].message.tool_calls[0].function.name == "time"
    either, arguments, named = (r.params.constraint for r in running.model.requests)
    assert either is not None
    assert either.source == ('weather",', 'time",')
    assert arguments == named, "a tool that is named needs no step to choose it"


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
    running = server(script("<tool_call>", *WEATHER))
    answer = running.client().chat.completions.create(model="tiny", messages=ASK, tools=TOOLS, max_tokens=30)  # type: ignore[call-overload]
    assert answer.choices[0].finish_reason == "length"


def test_a_template_without_tools_is_said(server: Start) -> None:
    running = server()
    running.model.template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(openai.BadRequestError, match="knows no tools"):
        running.client().chat.completions.create(model="tiny", messages=ASK, tools=TOOLS)  # type: ignore[call-overload]


def test_forms_are_told_from_templates() -> None:
    def form_of(source: str) -> object:
        return tool_form(ChatTemplate(source))

    shown = "{{ tools | tojson }}{{ messages[0].content }}"
    assert form_of(TEMPLATE) == HERMES
    llama = 'Respond with {"name": n, "parameters": p}<|eot_id|>'
    assert form_of(f"{{{{ '{llama}' }}}}{shown}") == BARE
    granite = "respond only with <|tool_call|> followed by a JSON list of tools used"
    assert form_of(f"{{{{ '{granite}' }}}}{shown}") == GRANITE
    with pytest.raises(NoToolFormError, match="it shows no tools"):
        form_of("{{ messages[0].content }}<tool_call>")
    with pytest.raises(NoToolFormError, match="it writes no calls"):
        form_of(shown)


def test_references_of_a_schema_are_kept() -> None:
    tree = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}, "leaf": {"$ref": "#/$defs/leaf"}},
        "$defs": {"leaf": {"enum": ["x", {"$ref": "#/not/a/reference"}]}},
        "required": ["leaf"],
    }
    [kids, leaf] = parameters_of(tree)
    check = jsonschema.Draft202012Validator(json.loads(str(kids.schema.source)))
    assert check.is_valid([{"leaf": "x", "kids": [{"leaf": "x"}]}])
    assert not check.is_valid([{"leaf": "x", "kids": [{"leaf": "y"}]}])
    check = jsonschema.Draft202012Validator(json.loads(str(leaf.schema.source)))
    assert check.is_valid({"$ref": "#/not/a/reference"})
