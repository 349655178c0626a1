"""The border to llguidance: compiling its grammars and telling its errors from ours.

Knows llguidance's limits, messages and stack use; knows no constraint language. Invariant: whatever llguidance says is
either a `ConstraintError` with one readable line, or a matcher that works.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from localrun.errors import ConstraintError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

T = TypeVar("T")

_STACK = 64 * 2**20  # bytes; llguidance recurses over rules, and a thread's default stack is 0.5 MB on macOS
_stack_size_lock = threading.Lock()


def parser_limits() -> LLParserLimits:
    """Limits for large schemas and vocabularies: twenty to a hundred times llguidance's own."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        max_items_in_row=200_000,
        initial_lexer_fuel=20_000_000,
        step_lexer_fuel=5_000_000,
        step_max_items=1_000_000,
        verbose_errors=False,
    )


def try_compile(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """A matcher at the start of `grammar` (llguidance's serialized form); ask it whether it is in error."""
    from llguidance import LLMatcher

    return on_a_roomy_stack(lambda: LLMatcher(tokenizer, grammar, log_level=0, limits=parser_limits()))


def compile_grammar(tokenizer: LLTokenizer, grammar: str, name: str) -> LLMatcher:
    """A matcher at the start of `grammar` (llguidance's serialized form).

    Raises `ConstraintError` with llguidance's reason, after the name of the constraint.
    """
    matcher = try_compile(tokenizer, grammar)
    if matcher.is_error():
        raise ConstraintError(f"{name}: {readable(matcher.get_error())}")
    return matcher


def on_a_roomy_stack(work: Callable[[], T]) -> T:
    """Run `work` in a thread with a large stack and return its result."""
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:  # handed to the caller's thread, whatever it is
            failure.append(error)

    with _stack_size_lock:
        before = threading.stack_size(_STACK)
        try:
            thread = threading.Thread(target=run, name="constraint-compiler")
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def readable(message: str) -> str:
    """The first line of a message of llguidance, without the grammar it quotes."""
    line = message.strip().splitlines()[0] if message.strip() else "llguidance gave no reason"
    line = re.sub(r"^at \d+\(\d+\): ", "", line)
    if line.startswith("panic: "):  # how it meets the bounds of its own tables
        line = f"the grammar is too large for llguidance ({line.removeprefix('panic: ')[:120]})"
    return line if len(line) <= 300 else line[:300] + "..."
