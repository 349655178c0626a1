"""Multiples within bounds: what is written satisfies the schema in exact arithmetic, or the schema is refused."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from localrun.constraint import check, prepare
from localrun.constraint.compiled import CompiledConstraint
from localrun.constraint.vocabulary import ByteTable
from localrun.errors import ConstraintError
from localrun.params import ConstraintSpec
from tests.constraint.schemas import accepts, refusal
from tests.constraint.walk import walk

STEPS = ("1e-8", "1e-7", "1e-5", "0.001", "0.01", "0.05", "0.1", "0.125", "0.25", "0.3", "0.333", "0.33333333", "0.5",
         "0.7", "1", "2", "3", "5", "6", "7", "7.3", "8", "12", "25", "97", "100", "360", "1000", "1e5", "1e6",
         "1e-20", "3e-9", "0.0003", "1024")  # fmt: skip
USUAL = frozenset({"1e-8", "1e-5", "0.001", "0.01", "0.05", "0.1", "0.25", "0.3", "0.5", "0.7", "1", "2", "3", "5", "7",
                   "12", "25", "97", "100", "360", "1000", "1e5", "1e6"})  # fmt: skip


def _bound(rng: random.Random) -> str:
    size = rng.choice([*range(21), 0, 1, 2])
    number = rng.choice(["1", "9", "1.5", str(rng.randint(1, 999)), f"{rng.random():.15g}", repr(rng.uniform(1, 10))])
    return f"{rng.choice(['', '-'])}{number}e{size}" if rng.random() < 0.9 else rng.choice(["0", "-0.0", "1e-9"])


def _case(rng: random.Random) -> tuple[str, dict[str, str]]:
    step = rng.choice(STEPS)
    found = {"multipleOf": step}
    bounds = sorted((_bound(rng), _bound(rng)), key=Decimal)
    for bound, names in zip(bounds, (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")), strict=True):
        if rng.random() < 0.85:
            found[rng.choice(names)] = bound
    kind = rng.choice(["integer", "number"])
    return kind, found


def _satisfies(kind: str, keywords: dict[str, str], text: str) -> bool:
    value = Fraction(Decimal(text))
    checks = {
        "multipleOf": lambda bound: value % bound == 0,
        "minimum": lambda bound: value >= bound,
        "maximum": lambda bound: value <= bound,
        "exclusiveMinimum": lambda bound: value > bound,
        "exclusiveMaximum": lambda bound: value < bound,
    }
    whole = kind == "number" or value.denominator == 1
    # The schema's own numbers are read as doubles and taken for the decimal that is their shortest form.
    return whole and all(checks[name](Fraction(_read(bound))) for name, bound in keywords.items())


def _read(number: str) -> Decimal:
    return Decimal(repr(float(number)) if set(number) & set(".e") else number)


def _has_a_usual_multiple(kind: str, keywords: dict[str, str]) -> bool:
    """Whether one of the first multiples in the bounds has few digits."""
    step = Fraction(_read(keywords["multipleOf"]))
    if kind == "integer":
        step = Fraction(step.numerator)
    low = [Fraction(_read(keywords[name])) for name in ("minimum", "exclusiveMinimum") if name in keywords]
    high = [Fraction(_read(keywords[name])) for name in ("maximum", "exclusiveMaximum") if name in keywords]
    starts = [*low, *high, Fraction(0)]
    tried = [
        (start // size + more) * size for start in starts for more in (-1, 0, 1, 2) for size in (step, 1000 * step)
    ]
    return any(
        abs(value) < 10**15 and value.denominator in {10**n for n in range(2)} | {1, 2, 5}
        and _satisfies(kind, keywords, str(Decimal(value.numerator) / value.denominator))
        for value in tried
    )  # fmt: skip


VOCABULARY = prepare(ByteTable())


def _bound_or_refused(schema: str) -> tuple[CompiledConstraint | None, str]:
    try:
        return check(ConstraintSpec("json_schema", schema, "s")).bind_to(VOCABULARY), ""
    except ConstraintError as error:
        return None, str(error)


@pytest.mark.parametrize("seed", range(4))
def test_multiples_within_bounds_are_exact_or_refused_with_a_pointer(seed: int) -> None:
    rng, taken, walked = random.Random(seed), 0, 0
    for number in range(150):
        kind, keywords = _case(rng)
        text = ", ".join([f'"type": "{kind}"', *(f'"{name}": {value}' for name, value in keywords.items())])
        schema = f'{{"type": "object", "properties": {{"a": {{{text}}}}}, "required": ["a"]}}'
        constraint, refused = _bound_or_refused(schema)
        if constraint is None:
            usual = keywords["multipleOf"] in USUAL and _has_a_usual_multiple(kind, keywords)
            assert not usual, (text, refused)
            assert "at /properties/a" in refused or "no value satisfies" in refused, (text, refused)
            continue
        taken += 1
        for walk_seed in range(4):
            output = walk(constraint, walk_seed + number, budget=60)
            if output is not None:
                walked += 1
                value = output.removeprefix('{"a":').partition(",")[0].rstrip("}")
                assert _satisfies(kind, keywords, value), (text, output)
                constraint.validate(output)
    assert taken > 50
    assert walked > taken


@pytest.mark.parametrize(
    ("schema", "yes", "no"),
    [
        (
            {"type": "integer", "minimum": 0, "maximum": 1e17, "multipleOf": 1e-8},
            ["0", "100000000000000000"],
            ["100000000000000001", "24091002880210950165", "-1"],
        ),
        (
            {"type": "number", "minimum": 1e16, "maximum": 1e17, "multipleOf": 1e-8},
            ["10000000000000000", "100000000000000000"],
            ["9999999999999999", "100000000000000001", "999999999999999999"],
        ),
        ({"type": "number", "minimum": 0, "maximum": 1e17}, ["100000000000000000"], ["100000000000000001"]),
        ({"type": "integer", "format": "int64"}, [str(2**63 - 1), str(-(2**63))], [str(2**63), str(-(2**63) - 1)]),
        ({"type": "integer", "multipleOf": 7, "maximum": 2**53 + 7}, ["9007199254740988"], ["9007199254741002"]),
        ({"type": "number", "multipleOf": 0.3, "minimum": 1e15}, ["3000000000000000"], ["1000000000000000", "0.3"]),
        ({"type": "number", "multipleOf": 0.25}, ["0.25", "-3.5", "7", "1000.75"], ["0.3", "0.125", "1.05"]),
        ({"type": "number", "multipleOf": 0.001}, ["0.001", "12", "1.5", "0.999"], ["0.0001", "01.5"]),
        ({"type": "number", "multipleOf": 50}, ["0", "50", "100", "-1250"], ["5", "75", "050"]),
        ({"type": "number", "multipleOf": 0.125, "exclusiveMinimum": 0}, ["0.5", "0.375"], ["0", "0.05", "0.2"]),
    ],
)
def test_bounds_and_steps_of_any_size_hold_together(schema: dict[str, Any], yes: list[str], no: list[str]) -> None:
    verdicts = {text: accepts(schema, text) for text in [*yes, *no]}
    assert verdicts == {**dict.fromkeys(yes, True), **dict.fromkeys(no, False)}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number", "multipleOf": 7e-9, "minimum": 0},
        {"type": "number", "multipleOf": 0.33333333},
        {"type": "integer", "multipleOf": 7, "minimum": 9.5e18},
        {"type": "number", "minimum": 1e-300, "maximum": 2e-300},
        {"type": "number", "minimum": 1e19},
    ],
)
def test_what_cannot_be_counted_or_written_is_refused_with_its_pointer(schema: dict[str, Any]) -> None:
    assert "at /properties/a:" in refusal({"properties": {"a": schema}})


@pytest.mark.parametrize("more", [{}, {"multipleOf": 1}, {"multipleOf": 7}, {"minimum": 0, "multipleOf": 1e-8}])
def test_a_whole_number_has_at_most_19_digits(more: dict[str, Any]) -> None:
    schema = {"type": "integer", **more}
    assert accepts(schema, "7" * 18)
    assert accepts(schema, "7000000000000000000")
    assert not accepts(schema, "7" * 20)
