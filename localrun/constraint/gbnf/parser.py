"""Reads GBNF, the grammar language of llama.cpp.

Knows the syntax as `llama_grammar_parser` (src/llama-grammar.cpp) takes it; knows nothing of what a grammar means.
Invariant: no input makes it recurse or loop without end. Groups are kept on a list of our own, so sixty thousand open
parentheses are an error message and no stack overflow.

Where llama.cpp is lax, this parser names the fault: `{5,2}` and `[z-a]` are errors, and so is an escape that is no
Unicode character.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from localrun.constraint.gbnf.syntax import (
    ANY_CHAR,
    EMPTY,
    MAX_CODE_POINT,
    Alt,
    Chars,
    Grammar,
    Interval,
    Node,
    Ref,
    Repeat,
    Rule,
    Seq,
    Token,
    char_set,
    complement,
)
from localrun.constraint.source_text import SourceText

MAX_DEPTH = 64
"""Groups inside groups. Real grammars stay under ten; what walks the tree may recurse."""
MAX_STACKED_REPEATS = 4
"""Repetitions of repetitions, as in `"a"?*+`."""
MAX_REPEAT = 100_000
"""The largest count in `{m,n}`; llama.cpp stops at 2,000."""

_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME = re.compile(r"[a-zA-Z0-9-]+")
_DIGITS = re.compile(r"[0-9]+")
_SIMPLE_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}


@dataclass(slots=True)
class _Group:
    """An open parenthesis (or a rule's body): finished alternatives and the sequence being read."""

    offset: int
    options: list[Node] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)
    repeatable: bool = False
    """Whether the last item may take a `*`: an empty literal or class may not."""
    repeats: int = 0
    """How many repetitions the last item has taken."""

    def close_option(self) -> None:
        self.options.append(self.items[0] if len(self.items) == 1 else Seq(tuple(self.items)))
        self.items = []
        self.repeatable = False

    def body(self) -> Node:
        self.close_option()
        return self.options[0] if len(self.options) == 1 else Alt(tuple(self.options))


class _Parser:
    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.text = source.text
        self.pos = 0

    def grammar(self) -> Grammar:
        rules: dict[str, Rule] = {}
        self._skip(lines=True)
        while self.pos < len(self.text):
            rule = self._rule()
            rules[rule.name] = rule  # a later definition replaces an earlier one, as in llama.cpp
        return Grammar(rules)

    def _rule(self) -> Rule:
        start = self.pos
        name = self._match(_NAME)
        if name is None:
            raise self._error(f"expected the name of a rule, found {self._here()}", _advice_for_name(self._peek()))
        self._skip(lines=False)
        if not self.text.startswith("::=", self.pos):
            advice = "names hold letters, digits and '-'; '_' is not allowed" if self._peek() == "_" else ""
            raise self._error(f"expected '::=' after the rule name {name!r}, found {self._here()}", advice)
        self.pos += 3
        self._skip(lines=True)
        body = self._body()
        if self.pos < len(self.text) and self._peek() not in "\r\n":
            raise self._error(f"expected the end of the line or another element, found {self._here()}")
        self._skip(lines=True)
        return Rule(name, body, start)

    def _body(self) -> Node:
        """Alternatives up to the end of the rule, groups included."""
        groups = [_Group(self.pos)]
        while True:
            nested = len(groups) > 1
            char = self._peek()
            if char == "(":
                groups.append(_Group(self.pos))
                if len(groups) - 1 > MAX_DEPTH:
                    raise self._error(
                        f"groups are nested deeper than {MAX_DEPTH}", "give the inner groups rules of their own"
                    )
                self.pos += 1
                self._skip(lines=True)
            elif char == ")" and nested:
                body = groups.pop().body()
                groups[-1].items.append(body)
                groups[-1].repeatable = True
                groups[-1].repeats = 0
                self.pos += 1
                self._skip(lines=len(groups) > 1)
            elif char == "|":
                groups[-1].close_option()
                self.pos += 1
                self._skip(lines=True)
            elif not self._element(groups[-1], nested=nested):
                if nested:
                    raise self.source.error(groups[-1].offset, "this '(' is never closed")
                return groups[0].body()

    def _element(self, group: _Group, *, nested: bool) -> bool:
        """Read one element or repetition into `group`; False where none begins."""
        char = self._peek()
        if not (char and char in "*+?{"):
            group.repeats = 0
        if char == '"':
            literal = self._literal()
            group.items.extend(literal if len(literal) == 1 else [Seq(tuple(literal))])
            group.repeatable = bool(literal)
        elif char == "[":
            chars = self._class()
            group.items.append(chars if chars is not None else EMPTY)
            group.repeatable = chars is not None
        elif char == ".":
            self.pos += 1
            group.items.append(Chars(ANY_CHAR))
            group.repeatable = True
        elif char and char in "<!":
            group.items.append(self._token())
            group.repeatable = True
        elif char and char in "*+?{":
            self._repeat(group, nested=nested)
        elif (name := _NAME.match(self.text, self.pos)) is not None:
            group.items.append(Ref(name.group(), self.pos))
            group.repeatable = True
            self.pos = name.end()
        else:
            return False
        self._skip(lines=nested)
        return True

    def _literal(self) -> list[Node]:
        start = self.pos
        self.pos += 1
        chars: list[Node] = []
        while self._peek() != '"':
            if self._peek() in ("", "\n", "\r") and '"' not in self.text[self.pos :]:
                raise self.source.error(start, "this string is never closed")
            code = self._char()
            chars.append(Chars(char_set([(code, code)])))
        self.pos += 1
        return chars

    def _class(self) -> Chars | None:
        """A `[...]`; None for an empty one, which matches the empty string in llama.cpp."""
        start = self.pos
        self.pos += 1
        negated = self._peek() == "^"
        self.pos += negated
        intervals: list[Interval] = []
        while self._peek() != "]":
            if self._peek() == "":
                raise self.source.error(start, "this '[' is never closed")
            at = self.pos
            low = high = self._char()
            if self._peek() == "-" and self.text[self.pos + 1 : self.pos + 2] not in ("]", ""):
                self.pos += 1
                high = self._char()
            if high < low:
                raise self.source.error(
                    at, f"the range {self.text[at : self.pos]!r} is upside down and matches nothing"
                )
            intervals.append((low, high))
        self.pos += 1
        if not intervals:
            return None
        chars = char_set(intervals)
        return Chars(complement(chars) if negated else chars)

    def _char(self) -> int:
        """One character or escape; its code point."""
        at = self.pos
        char = self._peek()
        self.pos += 1
        if char != "\\":
            return ord(char)
        escape = self._peek()
        self.pos += 1
        if escape in _HEX_ESCAPES:
            size = _HEX_ESCAPES[escape]
            digits = self.text[self.pos : self.pos + size]
            if re.fullmatch(f"[0-9a-fA-F]{{{size}}}", digits) is None:
                raise self.source.error(at, f"\\{escape} needs {size} hexadecimal digits, found {digits!r}")
            self.pos += size
            code = int(digits, 16)
            if code > MAX_CODE_POINT:
                raise self.source.error(at, f"\\{escape}{digits} is no Unicode character")
            return code
        if escape in _SIMPLE_ESCAPES and escape:
            return ord(_SIMPLE_ESCAPES[escape])
        advice = r"the escapes are \t \r \n \\ \" \[ \] \- \xHH \uHHHH \UHHHHHHHH"
        seen = escape if escape.isprintable() else f"U+{ord(escape):04X}"
        raise self.source.error(at, f"unknown escape '\\{seen}'" if escape else "a lone backslash at the end", advice)

    def _token(self) -> Token:
        start = self.pos
        negated = self._peek() == "!"
        self.pos += negated
        opening = self.pos
        if self._peek() != "<":
            raise self._error(f"expected '<' after '!', found {self._here()}", "a token is written <[id]> or <text>")
        if self.text.startswith("<[", self.pos):
            match = re.compile(r"<\[([0-9]{1,10})\]>").match(self.text, self.pos)
            if match is None or int(match.group(1)) > 0xFFFFFFFF:
                raise self._error("a token id is written <[123]>, with a number below 4294967296")
            self.pos = match.end()
            return Token(int(match.group(1)), match.group(), negated, start)
        end = self.text.find(">", self.pos)
        if end < 0:
            raise self.source.error(opening, "this '<' is never closed")
        self.pos = end + 1
        return Token(None, self.text[opening : self.pos], negated, start)

    def _repeat(self, group: _Group, *, nested: bool) -> None:
        at = self.pos
        sign = self._peek()
        self.pos += 1
        group.repeats += 1
        if group.repeats > MAX_STACKED_REPEATS:
            raise self.source.error(at, f"more than {MAX_STACKED_REPEATS} repetitions of one element")
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        low, high = bounds[sign] if sign in bounds else self._bounds(at, lines=nested)
        if not group.repeatable:
            raise self.source.error(at, f"{sign!r} has nothing before it to repeat")
        if max(low, high or 0) > MAX_REPEAT:
            raise self.source.error(at, f"a repetition of {max(low, high or 0)} is more than {MAX_REPEAT}")
        if high is not None and high < low:
            raise self.source.error(at, f"the repetition {{{low},{high}}} asks for at least {low} and at most {high}")
        group.items.append(Repeat(group.items.pop(), low, high))

    def _bounds(self, at: int, *, lines: bool) -> tuple[int, int | None]:
        self._skip(lines=lines)
        low = self._match(_DIGITS)
        if low is None:
            raise self._error(f"expected a number after '{{', found {self._here()}", "write {m}, {m,} or {m,n}")
        self._skip(lines=lines)
        high: int | None = _count(low)
        if self._peek() == ",":
            self.pos += 1
            self._skip(lines=lines)
            digits = self._match(_DIGITS)
            high = _count(digits) if digits is not None else None
            self._skip(lines=lines)
        if self._peek() != "}":
            raise self.source.error(at, "this '{' is never closed", "write {m}, {m,} or {m,n}")
        self.pos += 1
        return _count(low), high

    def _peek(self) -> str:
        return self.text[self.pos : self.pos + 1]

    def _here(self) -> str:
        return repr(self._peek()) if self._peek() else "the end of the grammar"

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self.text, self.pos)
        if match is None:
            return None
        self.pos = match.end()
        return match.group()

    def _skip(self, *, lines: bool) -> None:
        match = (_SPACE_AND_LINES if lines else _SPACE).match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()

    def _error(self, problem: str, advice: str = "") -> Exception:
        return self.source.error(self.pos, problem, advice)


def _count(digits: str) -> int:
    """The number, or a value over the limit where there are so many digits that Python would refuse to read them."""
    return int(digits) if len(digits) <= 10 else 10**10


def _advice_for_name(char: str) -> str:
    if char == "|":
        return "a rule ends with its line; end the line before with '|', or put the alternatives in parentheses"
    if char == "_":
        return "names hold letters, digits and '-'; '_' is not allowed"
    return ""


def parse(source: SourceText) -> Grammar:
    """Read a grammar. Raises `ConstraintError` with name, line, column and a caret.

    Only the syntax is checked here; `checks.check` looks at what the rules say.
    """
    nul = source.text.find("\0")
    if nul >= 0:
        raise source.error(nul, "the grammar holds a NUL character")
    return _Parser(source).grammar()
