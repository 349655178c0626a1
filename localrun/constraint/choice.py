"""Choices: the output is exactly one of some strings.

Knows strings and token tables; knows no model. Invariant: the strings are distinct and not empty, and none is cut
because another one begins it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from localrun.constraint.gbnf.regular import class_regex
from localrun.constraint.grammar import Grammar, TextAcceptor
from localrun.constraint.template_text import any_of
from localrun.errors import ConstraintError, InvalidOutputError

if TYPE_CHECKING:
    from localrun.engine.ports import TokenTable

MAX_CHOICES = 1000


def compile_choice(strings: tuple[str, ...], name: str, *, special: bool = False) -> Grammar:
    """Compile a choice. Raises `ConstraintError` for an empty or repeated string, or too many.

    With `special`, the strings are written by a chat template: special tokens in them are tokens.
    """
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

    acceptor = TextAcceptor(grammar, name)
    if not special:
        return Grammar(grammar, acceptor, validate, choices=strings)

    def with_table(table: TokenTable) -> tuple[str, tuple[int, ...]]:
        body, named = any_of(strings, table)
        return LLMatcher.grammar_from_lark(f"start: {body}\n"), named

    # No final check: a string that ends the generation by its token is not in the text.
    return Grammar(grammar, acceptor, lambda output: None, with_table)


ScoreNext = Callable[[Sequence[int]], Sequence[float]]
"""Log-probabilities of all tokens after the prompt and these tokens."""


def choice_probabilities(strings: Sequence[str], table: TokenTable, score: ScoreNext) -> list[tuple[str, float]]:
    """Each string with the probability that it is chosen (at temperature 1, without truncating samplers).

    The strings' own tokens form a trie. At each node the model's probabilities are taken over what may follow there:
    the tokens of the strings, and an end where a string ends. A string's probability is the product along its path, so
    they add up to 1 and are those of sampling under the constraint. `score` is called only for nodes with a choice.
    """
    paths = {string: tuple(table.encode(string.encode())) for string in strings}
    nodes = _choices_at(paths.values())
    rows: dict[tuple[int, ...], Sequence[float]] = {}

    def step(prefix: tuple[int, ...], token: int | None) -> float:
        """Log-probability of `token` (None: an end) after `prefix`, among what may follow."""
        options = nodes[prefix]
        if len(options) == 1:
            return 0.0
        if prefix not in rows:
            rows[prefix] = score(prefix)
        row = rows[prefix]
        weights = {
            option: _log_sum([float(row[end]) for end in table.eog_ids]) if option is None else float(row[option])
            for option in options
        }
        return weights[token] - _log_sum(list(weights.values()))

    return [
        (string, math.exp(sum(step(path[:i], token) for i, token in enumerate((*path, None)))))
        for string, path in paths.items()
    ]


def _choices_at(paths: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], set[int | None]]:
    """What may follow each prefix of the paths: token ids, and None for an end."""
    nodes: dict[tuple[int, ...], set[int | None]] = {}
    for path in paths:
        for i, token in enumerate((*path, None)):
            nodes.setdefault(path[:i], set()).add(token)
    return nodes


def _log_sum(logs: Sequence[float]) -> float:
    """log(sum(exp(x))), also where every x is very small."""
    top = max(logs)
    return top if top == -math.inf else top + math.log(sum(math.exp(x - top) for x in logs))
