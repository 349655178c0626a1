"""One request's whole state while the engine works on it.

Knows its tokens, its limits and its helpers; knows no other sequence and no plan. Invariants: `tokens[:n_computed]`
are in the slot's memory; the rest is pending, and at least one token is pending whenever a token is to be chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from localrun.engine.events import EngineEvent, FinishReason
from localrun.engine.ports import Block, Matcher, Output, Sampler
from localrun.params import GenerationParams


class Status(Enum):
    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()


@dataclass(slots=True)
class Times:
    """Moments of `time.perf_counter`, 0 where not reached."""

    submitted: float = field(default_factory=time.perf_counter)
    started: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0


@dataclass(eq=False, slots=True)
class Sequence:
    """A prompt, what follows it, and everything that decides what comes next."""

    tokens: list[int]
    """The prompt, then what was generated or forced."""
    n_prompt: int
    params: GenerationParams
    seed: int
    output: Output
    notify: Callable[[EngineEvent], None]
    matcher: Matcher | None = None
    number: int = 0
    """Order of arrival."""
    status: Status = Status.WAITING
    sampler: Sampler | None = None
    slot: int = -1
    n_computed: int = 0
    generated: list[int] = field(default_factory=list)
    """Everything that was generated or forced, also what a shift has dropped from `tokens` since."""
    n_cached_ram: int = 0
    n_cached_disk: int = 0
    n_draft: int = 0
    n_draft_accepted: int = 0
    n_uncertain: int = 0
    """Guessed tokens in the memory, behind `n_computed`, that nothing has confirmed."""
    chunk_end: int = 0
    """A position in the prompt where a chunk must end, because the state there is kept; 0 for none."""
    kept_state: tuple[int, Block] | None = None
    """A position in the answer and the memory's state there, for the disk."""
    n_dropped: int = 0
    """Tokens that a shift has dropped from the middle."""
    cancelled: bool = False
    """Set by any thread; read by the worker before each step."""
    expired: bool = False
    """Set by the deadline's timer; read like `cancelled`."""
    n_constrained: int = 0
    """How many of its last tokens the constraint ruled."""
    explain: bool = False
    """Its owner wants to hear where the prompt left what is cached."""
    times: Times = field(default_factory=Times)

    @property
    def pending(self) -> int:
        """How many tokens are still to be computed."""
        return len(self.tokens) - self.n_computed

    @property
    def prefilling(self) -> bool:
        """Whether its prompt is still being computed."""
        return self.n_computed < self.n_prompt

    @property
    def n_cached(self) -> int:
        """Prompt tokens that were not computed but found."""
        return self.n_cached_ram + self.n_cached_disk

    @property
    def n_generated(self) -> int:
        return len(self.generated)

    @property
    def cacheable(self) -> bool:
        """Whether its memory is that of its tokens computed in order: after a shift it is not."""
        return self.n_dropped == 0

    @property
    def n_left(self) -> int | None:
        """How many more tokens its limit allows; None without a limit."""
        limit = self.params.max_tokens
        return None if limit is None else max(0, limit - self.n_generated)

    @property
    def stop_request(self) -> FinishReason | None:
        """Why it must end now, if somebody said so."""
        if self.cancelled:
            return "interrupted"
        return "timeout" if self.expired else None
