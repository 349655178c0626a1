"""Regular expressions as constraints: Rust's `regex` syntax, matched against the whole output.

Knows llguidance's regex errors; knows no grammar. Invariant: what compiles matches at least one text.
"""

from __future__ import annotations

import re

from localrun.constraint.foreign import readable, try_compile
from localrun.constraint.grammar import Grammar, TextAcceptor
from localrun.constraint.repetitions import MAX_WRITTEN_OUT, written_out
from localrun.constraint.source_text import SourceText
from localrun.constraint.vocabulary import byte_tokenizer
from localrun.errors import ConstraintError, InvalidOutputError

MAX_LENGTH = 20_000
"""Characters of one expression."""

_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_BACK_REFERENCE = re.compile(r"\\[1-9]|\\k<")
_ADVICE = "the syntax is that of Rust's regex crate; the expression is matched against the whole output"


def compile_regex(pattern: str, name: str) -> Grammar:
    """Compile an expression. Raises `ConstraintError` with a caret where the place of the fault is known."""
    from llguidance import LLMatcher

    source = SourceText(pattern, name or "--regex")
    if len(pattern) > MAX_LENGTH:
        raise ConstraintError(f"{source.name}: {len(pattern):,} characters are more than {MAX_LENGTH:,}")
    _refuse_what_is_not_regular(source)
    size, offset = written_out(pattern)
    if size > MAX_WRITTEN_OUT:
        problem = f"with its repetitions written out the expression has more than {MAX_WRITTEN_OUT:,} characters"
        raise source.error(offset, problem, "repeat without a count, or less often")
    grammar = LLMatcher.grammar_from_regex(_without_outer_anchors(pattern))
    compiled = try_compile(byte_tokenizer(), grammar)
    if compiled.is_error():
        raise _error(source, compiled.get_error())
    acceptor = TextAcceptor(grammar, source.name)
    if acceptor.is_dead():
        raise ConstraintError(f"{source.name}: no text matches the expression {pattern[:80]!r}")

    def validate(output: str) -> None:
        if not acceptor.accepts(output):
            raise InvalidOutputError(f"the output {output[:80]!r} does not match {source.name}")

    return Grammar(grammar, acceptor, validate)


def _refuse_what_is_not_regular(source: SourceText) -> None:
    for form, what in ((_LOOK_AROUND, "look-around"), (_BACK_REFERENCE, "a back-reference")):
        for match in form.finditer(source.text):
            if not _escaped(source.text, match.start()):
                raise source.error(match.start(), f"{what} is not supported in a constraint", _ADVICE)


def _escaped(text: str, offset: int) -> bool:
    before = text[:offset]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _without_outer_anchors(pattern: str) -> str:
    """The pattern without `^` and `$` around it: the whole output is matched anyway.

    Kept where an alternative outside any group would change its meaning.
    """
    if "|" in pattern:
        return pattern
    start = pattern.removeprefix("^")
    return start.removesuffix("$") if start.endswith("$") and not _escaped(start, len(start) - 1) else start


def _error(source: SourceText, message: str) -> ConstraintError:
    """The error for what llguidance, or the regex parser inside it, says is wrong."""
    found = re.search(r"^error: ([^\n]+)", message, re.MULTILINE)
    caret = re.search(r"^    ( *)\^+\s*$", message, re.MULTILINE)
    if found is None:
        return ConstraintError(f"{source.name}: this is no regular expression: {readable(message)}", hint=_ADVICE)
    problem = f"this is no regular expression: {found.group(1)}"
    if caret is None or "\n" in source.text:
        return ConstraintError(f"{source.name}: {problem}", hint=_ADVICE)
    start = len(source.text) - len(source.text.removeprefix("^"))
    return source.error(min(len(caret.group(1)) + start, len(source.text)), problem, _ADVICE)
