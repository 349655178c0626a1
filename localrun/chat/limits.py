"""How much work and memory one rendering may take.

A template comes with a downloaded model, so it is untrusted: a few lines of it can ask for hours or for all memory.
Knows sizes and a budget; knows nothing of Jinja. Invariant: after every step that was accounted for, each text and each
container is smaller than `max_size`, and the sum of all steps is bounded in operations and in processor time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

MAX_SECONDS = 5.0
"""Processor time of the rendering thread. The slowest template of 70 known ones takes 0.01 s for 100 turns."""
_BASE_STEPS = 2_000_000  # about one second of Python
_BASE_SIZE = 4 << 20  # characters, far above any system prompt that a template writes by itself
_STEPS_BETWEEN_CLOCK_READS = 64
_CHARACTERS_PER_STEP = 64


class LimitExceededError(Exception):
    """The rendering was stopped. The message says which limit it reached."""


class Meter:
    """The budget of one rendering, used by one thread.

    `n_input` is the size of what goes in (characters of messages and tools): what a template may produce grows with it.
    """

    def __init__(self, n_input: int) -> None:
        self.max_size = _BASE_SIZE + 8 * n_input
        self._steps_left = _BASE_STEPS + 16 * n_input
        self._until_clock = _STEPS_BETWEEN_CLOCK_READS
        self._deadline = time.thread_time() + MAX_SECONDS

    def spend(self, n_steps: int = 1) -> None:
        """Account for work. Raises `LimitExceededError` when the budget is used up."""
        self._steps_left -= n_steps
        if self._steps_left < 0:
            raise LimitExceededError("it takes too many steps")
        self._until_clock -= n_steps
        if self._until_clock < 0:
            self._until_clock = _STEPS_BETWEEN_CLOCK_READS
            if time.thread_time() > self._deadline:
                raise LimitExceededError(f"it takes more than {MAX_SECONDS:g} s")

    def allow(self, size: int) -> None:
        """Account for a text or container of `size` characters and items, before it is made."""
        if size > self.max_size:
            raise LimitExceededError(f"it makes a value of more than {self.max_size} characters")
        self.spend(1 + max(0, size) // _CHARACTERS_PER_STEP)

    def check(self, value: object) -> None:
        """Account for a value that exists, with everything inside it."""
        if isinstance(value, str):
            self.allow(len(value))
        elif isinstance(value, list | tuple | dict | set | frozenset):
            self.allow(self.weigh(value))

    def weigh(self, value: object) -> int:
        """The characters and items inside a value, each counted as often as it would be written out.

        Two short lines can nest a list in itself forty times; written out it would be a terabyte. Stops at `max_size`.
        """
        weight = 0
        stack: list[Iterable[object]] = [(value,)]
        while stack and weight <= self.max_size:
            for item in stack.pop():
                weight += 1
                if isinstance(item, str):
                    weight += len(item)
                elif isinstance(item, dict):
                    stack.append(item.keys())
                    stack.append(item.values())
                elif isinstance(item, list | tuple | set | frozenset):
                    stack.append(item)
        return weight
