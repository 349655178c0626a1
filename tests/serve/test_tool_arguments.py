"""Arguments that are written one by one: what may be written for each parameter, and how it is read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import openai
import pytest

from localrun.chat.template import ChatTemplate
from localrun.params import GenerationParams
from localrun.responder import Done, Request, TextPiece
from localrun.serve.calling import CallArguments
from localrun.serve.tool_arguments import UnwritableError, parameters_of
from localrun.serve.tool_fields import Tools
from localrun.serve.tool_form import LFM
from localrun.serve.tool_probe import tool_form
from localrun.serve.turn import Turn
from tests.sdist import template_file
from tests.serve.conftest import Server
from tests.serve.test_tool_forms import result

Start = Callable[..., Server]


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def coder() -> ChatTemplate:
    return ChatTemplate(template_file("Qwen3-Coder").read_text(encoding="utf-8"))


def call(parameters: dict[str, Any], *steps: str, form: Any = None) -> tuple[list[Request], list[str]]:
    """What is asked for one demanded call whose steps a test writes, and the pieces of its arguments."""
    tools = ({"type": "function", "function": {"name": "f", "description": "d", "parameters": parameters}},)
    request = Request(GenerationParams(), tools=tools)
    turn = Turn(request, Tools(tools, "=f", parallel=True), form or tool_form(coder()))
    asked, told, left = [], [], list(steps)
    while not turn.over:
        assert turn.request is not None
        asked.append(turn.request)
        text = left.pop(0)
        tag = next((tag for tag in turn.request.tags if text.endswith(tag)), None)
        shown = text.removesuffix(tag or "")
        items = [item for character in shown for item in turn.take(TextPiece(character))]
        items += turn.take(Done(result(shown, tag)))
        told += [item.text for item in items if isinstance(item, CallArguments)]
    assert not left
    arguments = json.loads("".join(told))
    jsonschema.validate(arguments, parameters)
    return asked, told


def test_a_free_text_streams_as_it_is_written_and_ends_at_its_closing() -> None:
    [request], told = call(schema(code={"type": "string"}), 'print("é")\n</parameter>')
    assert request.params.constraint is None
    assert request.tags == ("\n</parameter>", "</parameter>")
    assert request.prefill == "<tool_call>\n<function=f>\n<parameter=code>\n"
    assert "".join(told) == '{"code": "print(\\"é\\")"}'
    assert len(told) > 8


def test_one_of_some_texts_is_chosen() -> None:
    unit = {"anyOf": [{"$ref": "#/$defs/unit"}, {"type": "null"}]}
    parameters = {**schema(unit=unit), "$defs": {"unit": {"enum": ["m", "mi"], "type": "string"}}}
    [request], told = call(parameters, "mi\n</parameter>")
    assert request.params.constraint is not None
    assert set(request.params.constraint.source) == {"m\n</parameter>", "mi\n</parameter>", "null\n</parameter>"}
    assert "".join(told) == '{"unit": "mi"}'
    _, told = call(parameters, "null\n</parameter>")
    assert "".join(told) == '{"unit": null}'


def test_other_values_are_json_under_their_schema() -> None:
    parameters = schema(place={"$ref": "#/$defs/place"}, days={"type": "integer", "maximum": 14})
    parameters["$defs"] = {"place": schema(lat={"type": "number"})}
    asked, told = call(parameters, "<parameter=place>", '{"lat":1.5}', "3\n</parameter>")
    assert "".join(told) == '{"place": {"lat":1.5}, "days": 3}'
    place, days = (request.params.constraint for request in asked[1:])
    assert place is not None
    assert days is not None
    assert place.followers == ()
    assert days.followers == ("\n</parameter>",), "only what follows tells where a number ends"
    check = jsonschema.Draft202012Validator(json.loads(str(place.source)))
    assert check.is_valid({"lat": 1})
    assert not check.is_valid({"lat": "1"})
    assert not jsonschema.Draft202012Validator(json.loads(str(days.source))).is_valid(15)


def test_a_text_with_conditions_is_generated_under_them_and_written_as_it_is() -> None:
    asked, told = call(
        schema(day={"type": "string", "format": "date"}, unit={"type": "string"}),
        "<parameter=day>",
        '"2026-01-31"',
        "m</parameter>",
    )
    assert asked[1].params.constraint is not None
    assert asked[2].prefill.endswith("<parameter=day>\n2026-01-31\n</parameter>\n<parameter=unit>\n")
    assert "".join(told) == '{"day": "2026-01-31", "unit": "m"}'


@pytest.mark.parametrize(
    ("declared", "written", "value"),
    [
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "7", "7"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "7", 7),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "7.5", "7.5"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "true", "true"),
        ({}, '{"a": [1]}', {"a": [1]}),
        ({"description": "anything"}, "Rome", "Rome"),
        ({"type": "string"}, "7", "7"),
    ],
)
def test_a_text_that_may_be_something_else_is_read_by_its_types(declared: Any, written: str, value: Any) -> None:
    _, told = call(schema(x=declared), f"{written}\n</parameter>")
    assert json.loads("".join(told)) == {"x": value}


def test_parameters_that_are_not_required_may_be_left_out() -> None:
    parameters = schema(a={"type": "string"}, b={"type": "string"})
    parameters["required"] = ["b"]
    asked, told = call(parameters, "<parameter=b>", "x\n</parameter>", "</function>")
    first, _, last = (request.params.constraint for request in asked)
    assert first is not None
    assert last is not None
    assert first.source == ("<parameter=a>", "<parameter=b>")
    assert last.source == ("<parameter=a>", "</function>")
    assert "".join(told) == '{"b": "x"}'
    _, told = call(schema(), "</function>")
    assert told == ["{}"]


def test_texts_in_quotes_are_json() -> None:
    asked, told = call(schema(a={"type": "string"}, n={"type": "integer"}), "a=", '"x"', "7)", form=LFM)
    assert "".join(told) == '{"a": "x", "n": 7}'
    assert asked[-1].prefill == '<|tool_call_start|>[f(a="x", n='
    assert asked[-1].params.constraint is not None
    assert asked[-1].params.constraint.followers == (",", ")")


def test_a_text_in_a_cdata_section_is_read_without_it() -> None:
    source = template_file("openbmb-MiniCPM5-1B").read_text(encoding="utf-8")
    _, told = call(schema(a={"type": "string"}), "<![CDATA[1 < 2]]></param>", form=tool_form(ChatTemplate(source)))
    assert json.loads("".join(told)) == {"a": "1 < 2"}


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"type": "object", "properties": {}, "minProperties": 1}, "'minProperties' beside its properties"),
        ({"anyOf": [schema(a={})]}, "'anyOf' beside its properties"),
        ({"type": "object", "properties": {}, "required": ["a"]}, "requires 'a' without declaring it"),
    ],
)
def test_a_schema_that_cannot_be_promised_is_refused_with_the_reason(
    server: Start, parameters: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnwritableError, match=reason):
        parameters_of(parameters)
    running = server()
    running.model.template = coder()
    tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": parameters}}]
    with pytest.raises(openai.BadRequestError, match=reason):
        running.client().chat.completions.create(model="tiny", messages=[{"role": "user", "content": "?"}], tools=tools)  # type: ignore[call-overload]
