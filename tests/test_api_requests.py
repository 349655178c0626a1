"""What a Python program hands in wrongly is a `UsageError` that names it, before any model is loaded."""

from __future__ import annotations

from typing import Any

import pytest

import localrun
from localrun.api import _request
from localrun.chat.messages import Message
from localrun.errors import UsageError


@pytest.mark.parametrize("prompt", [5, None, "", "  ", [], [5], object(), {"a": 1}, ["text"], {1, 2}])
def test_a_prompt_of_a_wrong_type_is_named(prompt: Any) -> None:
    with pytest.raises(UsageError, match="prompt"):
        _request(prompt, None, {})


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"stop": 5}, "stop"),
        ({"stop": None}, "stop"),
        ({"on_overflow": "x"}, "on_overflow"),
        ({"on_overflow": 5}, "on_overflow"),
        ({"schema": {1, 2}}, "schema"),
        ({"schema": {"type": object()}}, "schema"),
        ({"schema": b"{}"}, "schema"),
        ({"choice": 5}, "choice"),
        ({"choice": "yes"}, "choice"),
        ({"choice": []}, "choice"),
        ({"regex": 5}, "regex"),
        ({"grammar": ["a"]}, "grammar"),
        ({"constraint": "a"}, "constraint"),
        ({"max_token": 5}, "max_token"),
    ],
)
def test_a_keyword_of_a_wrong_type_is_named(params: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        _request("Hello", None, params)


@pytest.mark.parametrize("system", [5, b"x", ["a"]])
def test_a_system_prompt_is_a_text(system: Any) -> None:
    with pytest.raises(UsageError, match="system"):
        _request("Hello", system, {})


@pytest.mark.parametrize("name", [5, b"x", ["x"]])
def test_a_model_is_a_name_or_a_path(name: Any) -> None:
    with pytest.raises(UsageError, match="model"):
        localrun.load(name)


def test_a_near_name_is_offered() -> None:
    with pytest.raises(UsageError) as caught:
        _request("Hello", None, {"max_token": 5})
    assert caught.value.hint == "did you mean max_tokens?"
    with pytest.raises(UsageError) as caught:
        localrun.load("any", ctx=100)
    assert caught.value.hint == "did you mean n_ctx?"


def test_what_is_right_is_taken() -> None:
    request = _request([Message("user", "Hello")], "Be brief.", {"stop": ["a"], "on_overflow": "shift", "schema": True})
    assert [message.role for message in request.messages or ()] == ["system", "user"]
    assert request.params.stop == ("a",)
    assert request.params.on_overflow.value == "shift"


def test_the_package_lists_what_it_has() -> None:
    assert {"load", "Message", "LocalrunError"} <= set(dir(localrun))
