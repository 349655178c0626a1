"""Parameters of the Python interface: a value of a wrong type is an error that names the parameter, never a crash."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from localrun.config import Config
from localrun.errors import UsageError
from localrun.params import ConstraintSpec, EngineParams, GenerationParams, SamplingParams
from localrun.spread import Spread

WRONG: tuple[Any, ...] = (
    None, "1", "", 2.5, True, [], [None], ["a", 1], {}, {"a": 1}, float("nan"), float("inf"), 10**400, -(10**400),
    10**5000, -(10**5000), b"x", object, [[1, 2, 3]], [[1, "a"]],
)  # fmt: skip
CLASSES = {
    SamplingParams: {}, GenerationParams: {}, EngineParams: {}, Spread: {},
    ConstraintSpec: {"kind": "regex", "source": "a"},
}  # fmt: skip
CASES = [(made, field.name) for made in CLASSES for field in fields(made)]


@pytest.mark.parametrize(("made", "name"), CASES, ids=[f"{made.__name__}.{name}" for made, name in CASES])
def test_a_value_of_any_type_is_taken_and_hashable_or_refused_by_name(made: type[Any], name: str) -> None:
    for value in WRONG:
        try:
            hash(made(**{**CLASSES[made], name: value}))
        except UsageError as error:
            refused = error.message
        else:
            continue
        assert "\n" not in refused
        assert len(refused) < 300


@pytest.mark.parametrize(
    ("made", "values", "message"),
    [
        (Spread, {"main_gpu": "1"}, "main_gpu is '1'; it must be a whole number or None"),
        (Spread, {"n_cpu_moe": 2.5}, "n_cpu_moe is 2.5; it must be a whole number or None"),
        (Spread, {"cpu_moe": "no"}, "cpu_moe is 'no'; it must be True or False"),
        (Spread, {"tensor_split": None}, "tensor_split is None; it must be a list of items that are each a number"),
        (Spread, {"rpc": None}, "rpc is None; it must be a list of items that are each a text"),
        (EngineParams, {"spread": "layer"}, "spread is 'layer'; it must be of the type Spread"),
        (EngineParams, {"n_parallel": True}, "n_parallel is True; it must be a whole number"),
        (SamplingParams, {"top_k": 2.5}, "top_k is 2.5; it must be a whole number"),
        (SamplingParams, {"temperature": "1"}, "temperature is '1'; it must be a number"),
        (GenerationParams, {"on_overflow": "drop"}, "on_overflow is 'drop'; it must be one of error, shift"),
        (GenerationParams, {"stop": "x"}, "stop is 'x'; it must be a list of items that are each a text"),
    ],
)
def test_the_python_parameter_is_named_with_what_it_must_be(made: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(**values)
    assert caught.value.message.startswith(message)


def test_lists_become_tuples() -> None:
    assert Spread(tensor_split=[3, 1]) == Spread(tensor_split=(3.0, 1.0))  # type: ignore[arg-type]
    assert SamplingParams(logit_bias=[[1, 2.0]]).logit_bias == ((1, 2.0),)  # type: ignore[arg-type,list-item]


@pytest.mark.parametrize(("line", "what"), [("top_k = [1]", "whole number"), ("temperature = {a = 1}", "a number")])
def test_a_list_or_table_where_a_number_is_meant_is_named_by_its_key(tmp_path: Path, line: str, what: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(line)
    with pytest.raises(UsageError) as caught:
        Config(file=file, environment={}).sampling()
    assert f"{line.partition(' ')[0]} is" in caught.value.message
    assert caught.value.message.endswith(f"it must be {what}" if what == "a number" else f"it must be a {what}")
