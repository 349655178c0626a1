"""A schema that is wrong is refused before anything is asked, by its place in the request, and holds up nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import jsonschema
import pytest

from localrun.chat.template import ChatTemplate
from localrun.serve.fields import MAX_SCHEMA
from localrun.serve.tool_arguments import UnwritableError, of_object, parameters_of
from localrun.serve.tool_fields import MOST_TOOLS
from localrun.serve.tool_schemas import check_schemas
from tests.sdist import template_file
from tests.serve.conftest import Held, Server
from tests.serve.test_under_load import ask

Start = Callable[..., Server]
CHAT = "/v1/chat/completions"
TEMPLATES = ["Qwen-Qwen2.5-7B-Instruct", "Qwen3-Coder"]


def tool(parameters: Any, name: str = "f") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}


def objects(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def serving(server: Start, template: str) -> Server:
    running = server(lambda request: "No.")
    running.model.template = ChatTemplate(template_file(template).read_text(encoding="utf-8"))
    return running


# A schema, the place that is named beside the field, and a part of the reason.
WRONG: list[tuple[Any, str, str]] = [
    (objects(a={"type": "foo"}), "/properties/a/type", "'foo'"),
    (objects(a={"type": 5}), "/properties/a/type", "5"),
    (objects(a={"type": [{}]}), "/properties/a/type/0", "{}"),
    (objects(a=5), "/properties/a", "5"),
    (objects(a={"enum": 5}), "/properties/a/enum", "5"),
    (objects(a={"items": {"prefixItems": 5}}), "/properties/a/items/prefixItems", "5"),
    (objects(a={"pattern": "("}), "/properties/a/pattern", "no regular expression"),
    (objects(a={"$ref": "#/nowhere"}), "/properties/a/$ref", "leads nowhere"),
    (objects(a={"$ref": "http://elsewhere/x"}), "/properties/a/$ref", "out of the document"),
    ({**objects(a={"$ref": "#/x-own/a"}), "x-own": {"a": {"if": 5}}}, "/x-own/a/if", "5"),
    ({**objects(a={"$ref": "#/$defs/b"}), "$defs": {"b": {"type": "foo"}}}, "/$defs/b/type", "'foo'"),
    ({"type": "object", "properties": []}, "/properties", "[]"),
    ({"type": "object", "required": "a"}, "/required", "'a'"),
    ({"type": "object", "required": [{}]}, "/required/0", "{}"),
    ({"prefixItems": 5}, "/prefixItems", "5"),
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_wrong_schema_of_a_tool_is_refused_by_its_place_in_the_request(server: Start, template: str) -> None:
    running = serving(server, template)
    for schema, pointer, reason in WRONG:
        for choice in ("auto", "required"):
            body = ask(tools=[tool(objects(), "right"), tool(schema)], tool_choice=choice)
            answer = running.post(CHAT, body)
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, "tools[1].function.parameters"), schema
            assert error["message"].startswith(f"tools[1].function.parameters: at {pointer}: "), schema
            assert reason in error["message"], schema
            assert "--" not in error["message"], "a client has no flags"
    assert not running.model.requests
    assert running.post(CHAT, ask(tools=[tool(objects())])).status_code == 200


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("kind", ["array", "string", ["object", "null"], None, 7])
def test_the_arguments_of_a_tool_are_an_object(server: Start, template: str, kind: Any) -> None:
    answer = serving(server, template).post(CHAT, ask(tools=[tool({"type": kind})]))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tools[0].function.parameters"
    assert "are an object" in answer.json()["error"]["message"]


def test_the_name_of_a_tool_is_no_part_of_a_form(steady_server: Server) -> None:
    for name in ("<|im_end|>", "a>b", 'a"b', "a b", "é", "x" * 65, "a\n"):
        answer = steady_server.post(CHAT, ask(tools=[tool(objects(), name)]))
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools[0].function.name"), name


def test_a_schema_that_says_nothing_of_its_type_is_that_of_an_object() -> None:
    for draft in ("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"):
        either = {"$schema": draft, "$ref": "#/definitions/a", "definitions": {"a": {"minProperties": 1}}}
        check = jsonschema.validators.validator_for(either)(of_object(either))
        assert check.is_valid({"a": 1})
        assert not check.is_valid([])
        assert not check.is_valid({})
    with pytest.raises(UnwritableError, match="not that of an object"):
        parameters_of({"type": "array"})


def test_a_schema_that_is_too_large_and_too_many_tools_are_refused_at_once(server: Start) -> None:
    running = serving(server, "Qwen3-Coder")
    large = objects(**{f"p{i}": {"type": "integer", "description": "d" * 100} for i in range(3000)})
    form = {"type": "json_schema", "json_schema": {"schema": large}}
    many = [tool(objects(), f"f{i}") for i in range(MOST_TOOLS + 1)]
    for body, param, limit in (
        (ask(tools=[tool(large)]), "tools[0].function.parameters", f"{MAX_SCHEMA:,}"),
        (ask(response_format=form), "response_format.json_schema.schema", f"{MAX_SCHEMA:,}"),
        (ask(tools=many), "tools", str(MOST_TOOLS)),
    ):
        answer = running.post(CHAT, body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
        assert f"more than {limit}" in answer.json()["error"]["message"]


def test_others_go_on_while_a_schema_is_checked(server: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    running = serving(server, "Qwen3-Coder")
    check = Held(check_schemas)
    monkeypatch.setattr("localrun.serve.app.check_schemas", check)
    with check.held(), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(running.post, CHAT, ask(tools=[tool(objects())]))
        assert check.begun.wait(20)
        assert running.post(CHAT, ask()).status_code == 200
        check.go_on.set()
        assert asked.result().status_code == 200


@pytest.mark.parametrize("template", TEMPLATES)
def test_thousands_of_parameters_are_no_obstacle(server: Start, template: str) -> None:
    running = serving(server, template)
    kinds: list[dict[str, Any]] = [{"type": "string"}, {"type": "integer", "minimum": 3}, {"$ref": "#/$defs/unit"}]
    properties = {f"p{i}": {**kinds[i % 3], "description": "d"} for i in range(2000)}
    large = {**objects(**properties), "required": list(properties), "$defs": {"unit": {"enum": ["m", "mi"]}}}
    assert running.post(CHAT, ask(tools=[tool(large)])).status_code == 200


def test_a_parameter_brings_what_it_refers_to_and_no_more() -> None:
    tree = {
        **objects(
            a={"type": "integer"},
            b={"$ref": "#/$defs/one"},
            c={"$ref": "#/properties/a"},
            d={"$ref": "#/$defs/odd~1name/items"},
            e={"items": {"$ref": "#"}},
        ),
        "$defs": {
            "one": {"anyOf": [{"$ref": "#/$defs/two"}, {"type": "null"}]},
            "two": {"maximum": 3, "type": "integer"},
            "odd/name": {"items": {"const": 1}},
            "never": {"type": "string"},
        },
    }
    documents = {p.key: json.loads(str(p.schema.source)) for p in parameters_of(tree)}
    assert documents["a"] == {"type": "integer"}
    assert "never" not in str(documents["b"])
    assert "never" in str(documents["e"]), "who refers to the whole gets it"
    for key, right, wrong in (
        ("b", 3, 4),
        ("b", None, "x"),
        ("c", 1, "x"),
        ("d", 1, 2),
        ("e", [{"a": 1}], [{"a": "x"}]),
    ):
        check = jsonschema.Draft202012Validator(documents[key])
        assert check.is_valid(right), key
        assert not check.is_valid(wrong), key


def test_half_a_character_anywhere_is_refused_by_its_place(steady_server: Server) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["\ud83d"]}}}
    for body, place in (
        (ask(tools=[tool(schema)]), "tools[0].function.parameters.properties.a.enum[0]"),
        (ask(tools=[tool({"\ud83d": 1})]), "tools[0].function.parameters"),
        (ask(metadata={"x": "\ud83d"}), "metadata.x"),
    ):
        headers = {"Content-Type": "application/json"}
        answer = httpx2.post(steady_server.url + CHAT, content=json.dumps(body), headers=headers)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, place)
    assert steady_server.post(CHAT, ask("\\ud83d 🙂")).status_code == 200
