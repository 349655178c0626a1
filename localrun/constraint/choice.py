"""Choices: the output is exactly one of some strings.

Knows strings and token tables; knows no model. Invariant: the strings are distinct and not empty, and none is cut
because another one begins it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from localrun.constraint.compiled import Grammar, TextAcceptor
from localrun.constraint.gbnf.regular import class_regex
from localrun.errors import ConstraintError, InvalidOutputError

if TYPE_CHECKING:
    from localrun.engine.ports import TokenTable

MAX_CHOICES = 1000


def compile_choice(strings: tuple[str, ...], name: str) -> Grammar:
    """Compile a choice. Raises `ConstraintError` for an empty or repeated string, or too many."""
    from llguidance import LLMatcher

    name = name or "--choice"
    if "" in strings:
        raise ConstraintError(f"{name}: a choice is empty")
    if len(strings) > MAX_CHOICES:
        raise ConstraintError(f"{name}: {len(strings):,} choices are more than {MAX_CHOICES:,}")
    seen: set[str] = set()
    for string in strings:
        if string in seen:
            raise ConstraintError(f"{name}: the choice {string!r} is given twice")
        seen.add(string)
    options = "|".join("".join(class_regex(((ord(c), ord(c)),)) for c in string) for string in strings)
    grammar = LLMatcher.grammar_from_lark(f"start: /{options}/\n")

    def validate(output: str) -> None:
        if output not in seen:
            raise InvalidOutputError(f"the output {output[:80]!r} is none of the choices")

    return Grammar(grammar, TextAcceptor(grammar, name), validate, choices=strings)


ScoreNext = Callable[[Sequence[int]], Sequence[float]]
"""Log-probabilities of all tokens after the prompt and these tokens."""


def choice_probabilities(strings: Sequence[str], table: TokenTable, score: ScoreNext) -> list[tuple[str, float]]:
    """Each string with its probability, given that the output is one of them.

    The weight of a string is the product of the model's unconstrained token probabilities along the string's own
    tokenization, ended by any end-of-generation token; weights are divided by their sum. The strings' tokens form a
    trie: `score` is called once for each inner node, shared beginnings are not computed twice. The state of no sequence
    is changed here; what `score` does is up to the engine.
    """
    paths = {string: tuple(table.encode(string.encode())) for string in strings}
    rows: dict[tuple[int, ...], Sequence[float]] = {}

    def row(prefix: tuple[int, ...]) -> Sequence[float]:
        if prefix not in rows:
            rows[prefix] = score(prefix)
        return rows[prefix]

    weights = []
    for path in paths.values():
        steps = sum(float(row(path[:i])[token]) for i, token in enumerate(path))
        ends = [float(row(path)[token]) for token in table.eog_ids]
        weights.append(steps + (_log_sum(ends) if ends else 0.0))
    total = _log_sum(weights)
    return [(string, math.exp(weight - total)) for string, weight in zip(paths, weights, strict=True)]


def _log_sum(logs: Sequence[float]) -> float:
    """log(sum(exp(x))), also where every x is very small."""
    top = max(logs)
    return top if top == -math.inf else top + math.log(sum(math.exp(x - top) for x in logs))
