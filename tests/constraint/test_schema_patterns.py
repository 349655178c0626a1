"""`pattern`: enforced as the validator reads it, or refused with its place."""

from __future__ import annotations

import json

import pytest

from tests.constraint.schemas import accepts, assert_walks_are_valid, refusal


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"\S", ["a", " a "], ["", "  "]),
        (r"^\d+$", ["1", "42"], ["", "a1", "1\n"]),
        (r"^[\w-]+$", ["a-b_1"], ["a b", ""]),
        (r"^https:\/\/x$", ["https://x"], ["https://xy"]),
        (r"^a|b$", ["ax", "xb"], ["xa", "bx"]),
        (r"^(?:ab)+$", ["ab", "abab"], ["aba", ""]),
        (r"^hello\!$", ["hello!"], ["hello"]),
        (r"^[0-9]{3,}$", ["123", "12345"], ["12"]),
        ("", ["", "x"], []),
        ("b", ["b", "abc"], ["ac"]),
        (r'^"\\\n$', ['"\\\n'], ['"\\n']),
        (r"^[^\"\\]*$", ["a\tb"], ['"', "\\"]),
        (r"^\u00e9🙂$", ["é🙂"], ["e"]),
        (r"^(a|b$)", ["ab", "b"], ["bc"]),
        (r"^a?b*?c+?$", ["c", "abbcc"], ["ab"]),
        (r"[$^.]", ["a.b", "$"], ["ab"]),
    ],
)
def test_a_pattern_is_found_anywhere_unless_it_is_anchored(pattern: str, yes: list[str], no: list[str]) -> None:
    schema = {"type": "string", "pattern": pattern}
    verdicts = {text: accepts(schema, json.dumps(text, ensure_ascii=False)) for text in [*yes, *no]}
    assert verdicts == {**dict.fromkeys(yes, True), **dict.fromkeys(no, False)}
    assert_walks_are_valid(schema, seeds=5)


@pytest.mark.parametrize(
    "pattern",
    ["^(?=a)b$", "(?<!a)b", r"(a)\1", r"\bword", r"\p{L}", "a^b", r"\ud83d\ude42", "[", "(", "*", "a{2}{3}+", "a{,3}"],
)
def test_a_pattern_that_no_grammar_can_express_is_refused_with_its_place(pattern: str) -> None:
    assert "/properties/a/pattern" in refusal({"properties": {"a": {"pattern": pattern}}})


@pytest.mark.parametrize("pattern", ["^(a{1000}){1000}$", "(?:[ab]{10}|c){50000}", "^((a{100}){50}b){60,}$"])
def test_a_pattern_whose_repetitions_grow_too_long_is_refused_with_its_place(pattern: str) -> None:
    for schema in ({"pattern": pattern}, {"type": "string", "not": {"pattern": pattern}}):
        assert "200,000 characters" in refusal({"items": schema})
        assert "at /items/" in refusal({"items": schema})


def test_patterns_lengths_formats_and_constants_hold_together() -> None:
    schema = {
        "allOf": [{"pattern": "a"}, {"pattern": "b$"}, {"minLength": 3, "maxLength": 4}, {"not": {"const": "aab"}}]
    }
    schema["type"] = "string"
    assert [text for text in ("aab", "abab", "ab", "xxb", "axb", "aaaab") if accepts(schema, f'"{text}"')] == [
        "abab",
        "axb",
    ]
    assert "no value satisfies" in refusal({"type": "string", "pattern": "^a+$", "maxLength": 3, "minLength": 5})
    assert "no value satisfies" in refusal({"allOf": [{"pattern": "^a"}, {"pattern": "^b"}], "type": "string"})
