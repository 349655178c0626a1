"""Strings as JSON writes them: from a shape to a terminal.

Knows JSON's escapes and llguidance's operators on regular expressions (`&`, `~`). Invariant: every string has exactly
one written form (the one `json.dumps(ensure_ascii=False)` writes), so the complement of a set of strings is the
complement of their written forms.
"""

from __future__ import annotations

import functools
import json
import re

from localrun.constraint.gbnf.regular import class_regex, repeat_suffix
from localrun.constraint.gbnf.syntax import Alt, Chars, CharSet, Node, Repeat, Seq, char_set, complement
from localrun.constraint.schema.expr import Shape, Str
from localrun.constraint.schema.grammar import literal_regex
from localrun.constraint.schema.patterns import parse_pattern

_SHORT = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 0x22: '"', 0x5C: "\\"}
_ESCAPED = char_set([(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)])
_PLAIN = complement(_ESCAPED)
ANY_CHAR = (
    rf"(?:{class_regex(_PLAIN)}|\x{{5c}}(?:[\x{{22}}\x{{5c}}bfnrt]|u00(?:0[0-7]|0b|0e|0f|1[0-9a-f])))"  # one character
)


def written(value: object) -> str:
    """A JSON value in its one written form."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@functools.lru_cache(maxsize=512)
def _chars_regex(chars: CharSet) -> str:
    """One character out of a set, as JSON writes it."""
    plain = _intersection(chars, _PLAIN)
    options = [class_regex(plain)] if plain else []
    for low, high in _intersection(chars, _ESCAPED):
        for code in range(low, high + 1):
            short = _SHORT.get(code)
            options.append(literal_regex(f"\\{short}" if short else f"\\u{code:04x}"))
    return options[0] if len(options) == 1 and plain else f"(?:{'|'.join(options)})"


def _intersection(a: CharSet, b: CharSet) -> CharSet:
    return char_set((max(x[0], y[0]), min(x[1], y[1])) for x in a for y in b if max(x[0], y[0]) <= min(x[1], y[1]))


def _regex(node: Node) -> str:
    match node:
        case Chars(chars):
            return _chars_regex(chars) if chars else r"[^\x{0}-\x{10ffff}]"
        case Seq(items):
            return "".join(f"(?:{_regex(item)})" if isinstance(item, Alt) else _regex(item) for item in items)
        case Alt(options):
            return "|".join(_regex(option) for option in options)
        case Repeat(item, low, high):
            inner = _regex(item)
            return (inner if isinstance(item, Chars) else f"(?:{inner})") + repeat_suffix(low, high)
        case _:
            raise AssertionError(f"{node} is no part of a pattern")


def _quoted(regex: str) -> str:
    return rf"/\x{{22}}(?:{regex})\x{{22}}/"


def _one_of(values: list[str]) -> str:
    return "/" + "|".join(literal_regex(written(value)) for value in values) + "/"


def terminal(shape: Str) -> str | None:
    """The definition of a terminal for the strings of a shape; None if there are none to be seen."""
    if shape.values is not None:
        kept = sorted(value for value in shape.values if accepts(shape, value))
        return _one_of(kept) if kept else None
    parts = [_quoted(_regex(parse_pattern(pattern))) for pattern in sorted(shape.patterns)]
    if not parts or shape.min_len > 0 or shape.max_len is not None:
        parts.append(_quoted(ANY_CHAR + repeat_suffix(shape.min_len, shape.max_len)))
    parts += [f"~{_quoted(_regex(parse_pattern(pattern, wide=True)))}" for pattern in sorted(shape.not_patterns)]
    if shape.not_values:
        parts.append(f"~{_one_of(sorted(shape.not_values))}")
    return " & ".join(parts)


def accepts(shape: Str, value: str) -> bool:
    """Whether a string has this shape, by Python's reading of the patterns."""
    return (
        len(value) >= shape.min_len
        and (shape.max_len is None or len(value) <= shape.max_len)
        and (shape.values is None or value in shape.values)
        and value not in shape.not_values
        and all(re.search(pattern, value) for pattern in shape.patterns)
        and not any(re.search(pattern, value) for pattern in shape.not_patterns)
    )


@functools.lru_cache(maxsize=1024)
def is_empty(shape: Shape) -> bool:
    """Whether no string has this shape. llguidance's regular expressions know: an empty one is refused at once."""
    if not isinstance(shape, Str):
        return False
    definition = terminal(shape)
    if definition is None:
        return True
    if shape.values is not None or not (shape.patterns or shape.not_patterns or shape.not_values):
        return False
    from llguidance import LLMatcher

    from localrun.constraint.foreign import parser_limits
    from localrun.constraint.vocabulary import byte_tokenizer

    grammar = LLMatcher.grammar_from_lark(f"start: T\nT: {definition}\n")
    matcher = LLMatcher(byte_tokenizer(), grammar, log_level=0, limits=parser_limits())
    return not matcher.compute_bitmask()[0x22 >> 3] >> (0x22 & 7) & 1
