"""What the owner of a sequence hears from the engine. Values only.

For each sequence: any number of `Progress`, then pieces from its output (each after its `Chosen`), then exactly one
`Finished` or `Failed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from localrun.errors import LocalrunError

FinishReason = Literal["stop", "stop_string", "length", "context", "timeout", "interrupted"]


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` prompt tokens are in the memory; `cached` of them were found there."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """The next token and how likely the model found it; only for a sequence that asks for `logprobs`."""

    piece: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...]
    """The most likely tokens, most likely first."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something was dropped or changed: it becomes a warning of the result."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The sequence ended by itself, by a limit, or because its owner said so. Times in seconds."""

    reason: FinishReason
    tokens: tuple[int, ...]
    """What was generated, without the end-of-generation token."""
    n_prompt: int
    n_cached_ram: int
    n_cached_disk: int
    n_draft: int
    n_draft_accepted: int
    wait_s: float
    """From submission to the first decode."""
    prefill_s: float
    """From the first decode to the first token."""
    decode_s: float
    """From the first token to the last."""
    n_context: int
    """Tokens in the context at the end."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The sequence could not go on."""

    error: LocalrunError


@dataclass(frozen=True, slots=True)
class Diverged:
    """The prompt left what is cached at token `position`: what follows here, and what followed there."""

    position: int
    here: tuple[int, ...]
    there: tuple[int, ...]


EngineEvent = Progress | Chosen | Notice | Diverged | Finished | Failed
