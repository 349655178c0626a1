"""How much work and memory one rendering may take.

A template comes with a downloaded model, so it is untrusted: a few lines of it can ask for hours or for all memory.
Knows sizes and a budget; knows nothing of Jinja. Invariant: after every step that was accounted for, each text and each
container is smaller than `max_size`, and the sum of all steps is bounded in operations and in processor time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

MAX_SECONDS = 4.0
"""Processor time of the rendering thread, for a short conversation."""
_SECONDS_PER_ITEM = 0.004  # for each message; a template that looks back at every turn takes 2 s for 1,000 of them
_BASE_STEPS = 2_000_000  # about one second of Python
_BASE_SIZE = 4 << 20  # characters, far above any system prompt that a template writes by itself
_STEPS_BETWEEN_CLOCK_READS = 64
_CHARACTERS_PER_STEP = 64
_MAX_DEPTH = 200  # C's own recursion, in hashes of tuples for one, has no other guard
_CONTAINERS = (list, tuple, dict, set, frozenset)
_ITEM_SIZE = 32  # an item of a list, in characters: what it takes in memory, and when it is written out


class LimitExceededError(Exception):
    """The rendering was stopped. The message says which limit it reached."""


class Meter:
    """The budget of one rendering, used by one thread.

    `given` is what goes in (messages, tools); what a template may do and make grows with it.
    """

    def __init__(self, given: object) -> None:
        self._given = given  # kept alive, so that no other object can have its identity
        self._weights: dict[int, int] = {}  # of the containers in it, by identity: they are never changed
        n_given = self._weigh_given(given)
        self.max_size = _BASE_SIZE + 8 * n_given
        self._steps_left = _BASE_STEPS + 16 * n_given
        self._until_clock = _STEPS_BETWEEN_CLOCK_READS
        self._seconds = MAX_SECONDS + _SECONDS_PER_ITEM * len(self._weights)
        self._deadline = time.thread_time() + self._seconds

    def spend(self, n_steps: int = 1) -> None:
        """Account for work. Raises `LimitExceededError` when the budget is used up."""
        self._steps_left -= n_steps
        if self._steps_left < 0:
            raise LimitExceededError("it takes too many steps")
        self._until_clock -= n_steps
        if self._until_clock < 0:
            self._until_clock = _STEPS_BETWEEN_CLOCK_READS
            if time.thread_time() > self._deadline:
                raise LimitExceededError(f"it takes more than {self._seconds:.0f} s")

    def allow(self, size: int) -> None:
        """Account for a text or container of `size` characters, before it is made."""
        if size > self.max_size:
            raise LimitExceededError(f"it makes a value of more than {self.max_size} characters")
        self.spend(1 + max(0, size) // _CHARACTERS_PER_STEP)

    def check(self, value: object) -> None:
        """Account for a value that exists, with everything inside it."""
        if isinstance(value, str):
            self.allow(len(value))
        elif isinstance(value, _CONTAINERS) and self.weigh(value) > self.max_size:
            raise LimitExceededError(f"it makes a value of more than {self.max_size} characters")

    def weigh(self, value: object) -> int:
        """The size of a value: its characters, and some for each item, counted as often as it would be written out.

        Two short lines can nest a list in itself forty times; written out it would be a terabyte. Stops at `max_size`.
        """
        weight, n_seen = 0, 0
        stack: list[tuple[Iterable[object], int]] = [((value,), 0)]
        while stack and weight <= self.max_size:
            items, depth = stack.pop()
            if depth > _MAX_DEPTH:
                raise LimitExceededError(f"it nests values more than {_MAX_DEPTH} deep")
            for item in items:
                n_seen += 1
                weight += _ITEM_SIZE
                if isinstance(item, str):
                    weight += len(item)
                elif isinstance(item, _CONTAINERS):
                    known = self._weights.get(id(item))
                    if known is not None:
                        weight += known
                    elif isinstance(item, dict):
                        stack += [(item.keys(), depth + 1), (item.values(), depth + 1)]
                    else:
                        stack.append((item, depth + 1))
        self.spend(1 + n_seen // 4)
        return weight

    def _weigh_given(self, value: object) -> int:
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, _CONTAINERS):
            return 0
        items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        self._weights[id(value)] = weight = sum(_ITEM_SIZE + self._weigh_given(item) for item in items)
        return weight
