"""What the local engine can do is said in each server's words, or is a warning."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from localrun.chat.messages import Message
from localrun.errors import UsageError
from localrun.params import ConstraintSpec, GenerationParams, OverflowPolicy, SamplingParams
from localrun.remote.dialects import DIALECTS
from localrun.remote.payload import build
from localrun.responder import Request

SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}}}'
CONSTRAINTS = {
    "json_schema": ConstraintSpec("json_schema", SCHEMA),
    "gbnf": ConstraintSpec("gbnf", 'root ::= "a"'),
    "regex": ConstraintSpec("regex", "a+b"),
    "choice": ConstraintSpec("choice", ('a "b"', "c\n", "é.")),
}
EXTREMES = SamplingParams(
    temperature=0.1,
    top_k=7,
    top_p=0.7,
    min_p=0.2,
    typical_p=0.9,
    top_n_sigma=2,
    xtc_probability=0.5,
    xtc_threshold=0.2,
    dry_multiplier=0.8,
    dry_base=2,
    dry_allowed_length=3,
    dry_penalty_last_n=99,
    repeat_penalty=1.1,
    repeat_last_n=32,
    frequency_penalty=0.5,
    presence_penalty=0.6,
    mirostat=2,
    mirostat_tau=4,
    mirostat_eta=0.2,
    logit_bias=((15, float("-inf")), (7, 2.5)),
    seed=11,
    order=("top_k", "typical_p", "temperature"),
)


def built(dialect: str, refused: tuple[str, ...] = (), **params: Any) -> tuple[dict[str, Any], set[str]]:
    request = Request(GenerationParams(**params), messages=(Message("user", "Hi"),))
    payload = build(request, DIALECTS[dialect], "m", 11, frozenset(refused))
    return payload.body, {w.code for w in payload.warnings}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_setting_is_in_the_request_or_in_a_warning(dialect: str) -> None:
    body, warned = built(dialect, sampling=EXTREMES)
    for field in fields(SamplingParams):
        key = DIALECTS[dialect].sampling.get(field.name)
        assert (key in body) != (f"unsupported_{field.name}" in warned), field.name


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_every_constraint_is_in_the_request_or_in_a_warning(dialect: str, kind: str) -> None:
    free, _ = built(dialect)
    body, warned = built(dialect, constraint=CONSTRAINTS[kind])
    assert (body != free) != ("unsupported_constraint" in warned)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_defaults_warn_of_nothing(dialect: str) -> None:
    assert built(dialect)[1] == set()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"ignore_eos": True}, "ignore_eos"),
        ({"think": False}, "think"),
        ({"think_budget": 5}, "think_budget"),
        ({"priority": 3}, "priority"),
        ({"on_overflow": OverflowPolicy.SHIFT}, "on_overflow"),
    ],
)
def test_every_other_wish_is_in_the_request_or_in_a_warning(dialect: str, params: dict[str, Any], code: str) -> None:
    free, _ = built(dialect)
    body, warned = built(dialect, **params)
    assert (body != free) != (f"unsupported_{code}" in warned)


def test_the_same_command_means_the_same_on_servers_with_other_defaults() -> None:
    body, _ = built("vllm")
    assert {key: body[key] for key in ("temperature", "top_k", "top_p", "min_p")} == {
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
    }


def test_constraints_in_the_words_of_each_server() -> None:
    choice = CONSTRAINTS["choice"]
    assert built("llama-server", constraint=choice)[0]["grammar"] == 'root ::= "a \\"b\\"" | "c\\n" | "é."'
    assert built("vllm", constraint=choice)[0]["structured_outputs"] == {"choice": list(choice.source)}
    assert built("vllm", constraint=CONSTRAINTS["regex"])[0]["structured_outputs"] == {"regex": "a+b"}
    regex = built("sglang", constraint=choice)[0]["regex"]
    assert all(re.fullmatch(regex, text) for text in choice.source)
    assert built("localrun", constraint=choice)[0]["choices"] == list(choice.source)
    form = built("ollama", constraint=CONSTRAINTS["json_schema"])[0]["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["schema"]["properties"] == {"a": {"type": "integer"}}
    form = built("tensorrt-llm", constraint=CONSTRAINTS["gbnf"])[0]["response_format"]
    assert form == {"type": "ebnf", "ebnf": 'root ::= "a"'}


def test_priorities_keep_their_direction() -> None:
    assert built("localrun", priority=5)[0]["priority"] == 5
    assert built("vllm", priority=5)[0]["priority"] == -5, "vLLM serves lower values first"


def test_a_begun_answer_is_continued_or_refused() -> None:
    request = Request(GenerationParams(), messages=(Message("user", "Hi"),), prefill="Once")
    last = {"role": "assistant", "content": "Once"}
    vllm = build(request, DIALECTS["vllm"], "m", 1).body
    assert (vllm["messages"][-1], vllm["continue_final_message"], vllm["add_generation_prompt"]) == (last, True, False)
    assert build(request, DIALECTS["llama-server"], "m", 1).body["messages"][-1] == last
    with pytest.raises(UsageError, match="cannot continue an answer"):
        build(request, DIALECTS["ollama"], "m", 1)


def test_a_key_known_to_be_refused_is_left_out_with_a_warning() -> None:
    body, warned = built("openai", refused=("seed",))
    assert "seed" not in body
    assert warned == {"unsupported_seed"}
    body, warned = built("openai", refused=("max_tokens",), max_tokens=5)
    assert body["max_completion_tokens"] == 5
    assert warned == set()
