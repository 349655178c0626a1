"""A row of a batch: what it may hold, and whose settings win."""

from __future__ import annotations

from typing import Any

import pytest

from localrun.batch import Row, RowReader
from localrun.params import ConstraintSpec, GenerationParams, OverflowPolicy, SamplingParams


def rows(*lines: str, base: GenerationParams | None = None, **options: Any) -> list[Row]:
    return list(RowReader(base or GenerationParams(), **options).read(line.encode() for line in lines))


def test_a_row_refines_the_settings_of_the_command_line() -> None:
    base = GenerationParams(sampling=SamplingParams(temperature=0.1, top_k=7), max_tokens=5)
    row, plain = rows(
        '{"prompt": "x", "temperature": 0.8, "max_tokens": 9, "stop": ["a"], "seed": 3}', '{"prompt": "x"}', base=base
    )
    assert row.request is not None
    assert plain.request is not None
    assert (row.request.params.sampling.temperature, row.request.params.sampling.top_k) == (0.8, 7)
    assert (row.request.params.max_tokens, row.request.params.stop) == (9, ("a",))
    assert plain.request.params == base


BASE = GenerationParams(
    sampling=SamplingParams(temperature=0.1, xtc_probability=0.5, xtc_threshold=0.3, mirostat=2, seed=4, top_k=9),
    max_tokens=5,
    stop=("END",),
    ignore_eos=True,
    timeout_s=9,
    on_overflow=OverflowPolicy.TRUNCATE_MIDDLE,
    think=True,
    think_budget=3,
    constraint=ConstraintSpec("regex", "a"),
)


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ('"on_overflow": "error"', "on_overflow"),
        ('"on_overflow": null', "on_overflow"),
        ('"ignore_eos": false', "ignore_eos"),
        ('"think": null', "think"),
        ('"think_budget": null', "think_budget"),
        ('"stop": []', "stop"),
        ('"stop": null', "stop"),
        ('"timeout": null', "timeout_s"),
        ('"max_tokens": null', "max_tokens"),
        ('"max_tokens": -1', "max_tokens"),
        ('"schema": null', "constraint"),
        ('"temperature": 0.8', "temperature"),
        ('"temperature": null', "temperature"),
        ('"top_k": 40', "top_k"),
        ('"seed": null', "seed"),
        ('"xtc": 0', "xtc_probability"),
        ('"xtc": null', "xtc_threshold"),
        ('"mirostat": 0', "mirostat"),
    ],
)
def test_what_a_row_names_wins_also_where_it_is_the_default(setting: str, field: str) -> None:
    (row,) = rows(f'{{"prompt": "x", {setting}}}', base=BASE)
    assert row.request is not None
    params, default = row.request.params, GenerationParams()
    holder, expected = (params, default) if hasattr(params, field) else (params.sampling, default.sampling)
    assert getattr(holder, field) == getattr(expected, field)
    assert params != BASE
    (plain,) = rows('{"prompt": "x"}', base=BASE)
    assert plain.request is not None
    assert plain.request.params == BASE


def test_a_row_that_names_no_system_prompt_with_null_has_none() -> None:
    (row,) = rows('{"prompt": "x", "system": null}', system="be brief")
    assert row.request is not None
    assert [message.role for message in row.request.messages] == ["user"]


def test_a_row_has_a_prompt_a_conversation_or_raw_text() -> None:
    prompt, messages, raw = rows(
        '{"prompt": "hi", "system": "be brief"}',
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}',
        '{"raw": "The capital of"}',
        system="default",
    )
    assert prompt.request is not None
    assert [m.content for m in prompt.request.messages] == ["be brief", "hi"]
    assert messages.request is not None
    assert [m.role for m in messages.request.messages] == ["system", "user", "assistant"]
    assert raw.request is not None
    assert raw.request.raw == b"The capital of"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('{"prompt": "x", "temperature": -1}', "temperature"),
        ('{"prompt": "x", "raw": "y"}', "exactly one"),
        ('{"prompt": 5}', "no text"),
        ('{"prompt": "x", "ctx": 5}', "whole batch"),
        ('{"prompt": "x", "tempera": 5}', "tempera"),
        ('{"messages": []}', "messages"),
        ('{"messages": [{"role": "robot", "content": "x"}]}', "role"),
        ('{"prompt": "x", "schema": {}, "regex": "a"}', "exclude"),
        ('{"prompt": "x", "choice": "a"}', "choice"),
        ('{"prompt": "x", "system": 5}', "system is no text"),
        ('{"prompt": "x", "system": ["a"]}', "system is no text"),
        ('{"raw": "x", "system": "a"}', "system needs the chat template"),
        ('{"messages": [{"role": "system", "content": "x"}], "system": "a"}', "of their own"),
        ('{"messages": [{"role": "assistant", "content": "x", "reasoning": [1]}]}', "reasoning"),
        ('{"prompt": "x", "batch_size": 5}', "whole batch"),
    ],
)
def test_a_row_that_makes_no_sense_says_why(line: str, word: str) -> None:
    (row,) = rows(line)
    assert row.request is None
    assert word in str(row.error)


def test_a_row_with_a_fault_elsewhere_keeps_its_id() -> None:
    (row,) = rows(r'{"raw": "\ud800", "id": "mine"}')
    assert row.id == "mine"
