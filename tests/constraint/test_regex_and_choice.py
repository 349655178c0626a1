"""Regular expressions and choices: what they match, what is refused, and how choices are weighed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from localrun.constraint import check
from localrun.constraint.choice import choice_probabilities
from localrun.constraint.vocabulary import ByteTable
from localrun.errors import ConstraintError, InvalidOutputError, LocalrunError
from localrun.params import ConstraintSpec


def regex(pattern: str, text: str) -> bool:
    return check(ConstraintSpec("regex", pattern)).grammar.acceptor.accepts(text)


def error_of(kind: str, source: str | tuple[str, ...]) -> LocalrunError:
    with pytest.raises(ConstraintError) as caught:
        check(ConstraintSpec(kind, source))  # type: ignore[arg-type]
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("[0-9]{3}", ["123"], ["12", "1234", ""]),
        ("^a+$", ["a", "aa"], ["ba", ""]),
        ("(?i)yes|no", ["YES", "nO"], ["maybe"]),
        (r"\p{Lu}\w*", ["Ärger"], ["ärger"]),
        ("a/b", ["a/b"], ["ab"]),
        (r"\$[0-9]+\.[0-9]{2}", ["$5.00"], ["5.00"]),
        ("(?s).*", ["a\nb", ""], []),
        ("", [""], ["a"]),
        ("é🙂?", ["é", "é🙂"], ["🙂"]),
        (r"\(\?=", ["(?="], []),
        ("a{0,100000}", ["", "aaaa"], ["b"]),
        (r"\x{100000}?\{1000000}[{1000000}]?", ["{1000000}", "{1000000}0"], ["1000000"]),
        ("(?:a{100}){1000,}|b", ["b"], ["a"]),
        ("((?i)x|[y[z]]{2}){3}", ["XXx", "xyzx"], ["yyy"]),
    ],
)
def test_an_expression_matches_the_whole_output(pattern: str, yes: list[str], no: list[str]) -> None:
    texts = {**dict.fromkeys(yes, True), **dict.fromkeys(no, False)}
    assert {text: regex(pattern, text) for text in texts} == texts


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("ab(?=c)", "1:3: look-around is not supported"),
        ("(?<!a)b", "1:1: look-around is not supported"),
        (r"(a)\1", "1:4: a back-reference is not supported"),
        ("a[", "1:2: this is no regular expression: unclosed character class"),
        ("(a", "unclosed group"),
        ("*", "repetition operator missing expression"),
        (r"\bx", "not supported"),
        ("[a&&b]", "no text matches"),
        ("(" * 5000, "no regular expression"),
        ("a" * 30_000, "30,000 characters"),
        ("a{1000000}", "1:2: with its repetitions written out"),
        ("(a{1000}){1000}", "1:10: with its repetitions written out"),
        (r"(?:[]a]{10}\x{41}[^]{]{990}){1,900}", "repetitions written out"),
        ("(?P<n>x{2}{3}{100}){1000}", "repetitions written out"),
        ("a{99999999999999999999}", "repetitions written out"),
        ("(" + "a{9000}" * 30 + ")?", "repetitions written out"),
    ],
)
def test_what_is_no_regular_expression_is_refused(pattern: str, problem: str) -> None:
    assert problem in str(error_of("regex", pattern))


def test_the_caret_points_into_the_expression() -> None:
    assert str(error_of("regex", "ab(?=c)").hint).endswith("\n  ab(?=c)\n    ^")


def test_the_final_check_of_an_expression() -> None:
    grammar = check(ConstraintSpec("regex", "[ab]+", "--regex")).grammar
    grammar.validate("ab")
    with pytest.raises(InvalidOutputError, match="does not match"):
        grammar.validate("abc")


def test_a_choice_is_exactly_one_of_the_strings() -> None:
    strings = ("yes", "no", "yesterday", "é🙂", 'a"b\n', ".*")
    grammar = check(ConstraintSpec("choice", strings)).grammar
    assert grammar.choices == strings
    assert all(grammar.acceptor.accepts(string) for string in strings)
    assert not any(grammar.acceptor.accepts(text) for text in ("", "ye", "yesno", "Yes", "xx", "yesterda"))
    with pytest.raises(InvalidOutputError, match="none of the choices"):
        grammar.validate("ye")


def test_choices_that_make_no_sense_are_refused() -> None:
    assert "twice" in str(error_of("choice", ("a", "b", "a")))
    assert "empty" in str(error_of("choice", ("a", "")))
    assert "more than" in str(error_of("choice", tuple(map(str, range(2000)))))


class Model:
    """A made-up model over bytes: each next byte's probability depends on the last one."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def score(self, prefix: Sequence[int]) -> list[float]:
        self.asked.append(tuple(prefix))
        raw = [math.sin(token * 7 + (prefix[-1] if prefix else 3)) for token in range(257)]
        norm = math.log(sum(map(math.exp, raw)))
        return [value - norm for value in raw]


def test_choices_have_the_probabilities_of_sampling_under_the_constraint() -> None:
    model = Model()
    strings = ("yes", "yesterday", "no")
    found = dict(choice_probabilities(strings, ByteTable(), model.score))
    assert list(found) == list(strings)
    assert math.isclose(sum(found.values()), 1)
    # Only where more than one thing may follow is the model asked: at the start, and behind "yes".
    assert model.asked == [(), tuple(b"yes")]
    start, behind = Model().score(()), Model().score(tuple(b"yes"))
    yes = math.exp(start[ord("y")]) / (math.exp(start[ord("y")]) + math.exp(start[ord("n")]))
    end, longer = math.exp(behind[ByteTable.end]), math.exp(behind[ord("t")])
    assert math.isclose(found["no"], 1 - yes)
    assert math.isclose(found["yes"], yes * end / (end + longer))


def test_very_unlikely_choices_still_have_probabilities() -> None:
    def score(prefix: Sequence[int]) -> list[float]:
        return [-900.0] * 257

    assert [p for _, p in choice_probabilities(("aa", "bb"), ByteTable(), score)] == pytest.approx([0.5, 0.5])
