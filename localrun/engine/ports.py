"""What the engine needs of the world: a model that decodes, a sampler that chooses, a constraint that masks.

Protocols only, no ctypes, no text templates: every engine test runs on a fake backend with a byte vocabulary.
Invariant: whoever implements `Backend` maps every failure to an exception of `localrun.errors`, except "no room",
which is an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from localrun.params import SamplingParams

Block: TypeAlias = bytes | bytearray | memoryview
"""Bytes of the memory of some tokens, which only the backend understands."""

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Logits: TypeAlias = npt.NDArray[np.float32]  # (n_vocab,), a view that dies at the next decode


class TokenTable(Protocol):
    """The vocabulary as bytes."""

    @property
    def n_tokens(self) -> int: ...

    @property
    def eog_ids(self) -> frozenset[int]:
        """Every token that ends a generation."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes of a token, special tokens as their written form."""
        ...

    def pieces(self) -> Sequence[bytes]:
        """The bytes of all tokens, in order of their ids; read in bulk."""
        ...

    def is_eog(self, token: int) -> bool:
        """Whether the token ends a generation."""
        ...

    def is_control(self, token: int) -> bool:
        """Whether the token is no text: control, unknown or unused."""
        ...

    def encode(self, text: bytes, *, special: bool = False) -> list[int]:
        """Token ids of plain text; with `special`, written special tokens become themselves. Never adds BOS or EOS."""
        ...


class Matcher(Protocol):
    """The state of one sequence inside a compiled constraint. Owned by that sequence; not shared between threads."""

    def mask(self, logits: Logits) -> None:
        """Set the logits of every token that may not come next to -inf, in place.

        End-of-generation tokens stay allowed exactly where the output may end.
        """
        ...

    def accept(self, token: int) -> None:
        """Advance by a token that the mask allows. Raises `ConstraintError` for any other (our own bug)."""
        ...

    def forced(self) -> list[int]:
        """The tokens that must come next, whatever is sampled (possibly none). Does not advance."""
        ...

    def rollback(self, n: int) -> None:
        """Take back the last `n` accepted tokens."""
        ...

    def fork(self) -> Matcher:
        """An independent copy in the same state."""
        ...

    @property
    def may_end(self) -> bool:
        """Whether what was accepted so far is complete."""
        ...

    @property
    def must_end(self) -> bool:
        """Whether nothing but the end may follow."""
        ...

    def closing(self, budget: int) -> list[int] | None:
        """Tokens that complete the output, if `budget` tokens suffice *only just*; None while there is no hurry.

        Called after each token with the tokens that are left; the engine emits what is returned instead of sampling.
        """
        ...


class Constraint(Protocol):
    """A compiled constraint, shared by all sequences that use it."""

    def matcher(self) -> Matcher:
        """A new matcher at the start."""
        ...

    def validate(self, text: str) -> None:
        """Final check of a complete output. Raises `InvalidOutputError`."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive tokens of one sequence that one decode computes, from position `start`."""

    seq: int
    start: int
    tokens: Sequence[int]
    logits: Literal["none", "last", "all"]
    """Which of the tokens give a row of logits."""


class Decoded(Enum):
    """How a decode ended."""

    OK = auto()
    NO_ROOM = auto()
    """The memory has no room for these rows; nothing was changed."""
    ABORTED = auto()
    """`abort` was called; some rows may be in the memory, and no logits are."""


MemoryKind = Literal["full", "window", "state"]
"""full: every position can be cut; window: some layers forget beyond a sliding window; state: a running state."""


class Sampler(Protocol):
    """Chooses tokens for one sequence; remembers what it accepted (penalties, random state)."""

    def sample(self, row: int) -> int:
        """Choose a token from the logits of batch row `row` of the last decode, and accept it.

        Raises `NonFiniteLogitsError` where the logits are not finite or nothing is left to choose.
        """
        ...

    def accept(self, token: int) -> None:
        """Take a token that was not sampled (prompt, forced) into account."""
        ...

    def close(self) -> None:
        """Free it. Idempotent."""
        ...


class Backend(Protocol):
    """A model with a memory of cells, each shared by any number of sequences (ids 0 … n_seq_max - 1)."""

    @property
    def table(self) -> TokenTable: ...

    @property
    def n_ctx_seq(self) -> int:
        """The most tokens that one sequence may have."""
        ...

    @property
    def n_cells(self) -> int:
        """Tokens that all sequences together may have, shared ones counted once."""
        ...

    @property
    def n_batch(self) -> int:
        """The most rows of one decode."""
        ...

    @property
    def n_tail(self) -> int:
        """The least length of a prompt's last piece that is computed like the whole (see `pieces`)."""
        ...

    @property
    def n_seq_max(self) -> int: ...

    @property
    def memory_kind(self) -> MemoryKind: ...

    @property
    def n_window(self) -> int:
        """The sliding window in tokens, 0 where there is none."""
        ...

    @property
    def can_shift(self) -> bool:
        """Whether positions of cached tokens may be moved."""
        ...

    def decode(self, spans: Sequence[Span]) -> Decoded:
        """Compute `spans`; rows are numbered in their order. Raises `EngineError` for a fatal failure."""
        ...

    def logits(self, row: int) -> Logits:
        """The logits of one row of the last decode: a writable view that dies at the next decode."""
        ...

    def sampler(self, params: SamplingParams, seed: int, banned: Sequence[int]) -> Sampler:
        """A new sampler; `banned` tokens are never chosen."""
        ...

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        """Share the cells of positions [start, stop) of `source` with `target`."""
        ...

    def remove(self, seq: int, start: int, stop: int) -> bool:
        """Drop positions [start, stop) (stop < 0: to the end). False where the memory cannot drop a part."""
        ...

    def shift(self, seq: int, start: int, stop: int, delta: int) -> None:
        """Add `delta` to the positions [start, stop)."""
        ...

    def first_position(self, seq: int) -> int:
        """The smallest position whose cells are all there, -1 for an empty sequence."""
        ...

    def last_position(self, seq: int) -> int:
        """The largest position in the memory, -1 for an empty sequence."""
        ...

    def save_blocks(self, seq: int, start: int, stop: int, block: int) -> list[Block]:
        """The cells of positions [start, stop) as opaque blocks of `block` tokens.

        Raises `EngineError` where the memory cannot be cut into blocks.
        """
        ...

    def restore_blocks(self, seq: int, start: int, blocks: Iterable[Block], stop: int | None = None) -> int:
        """Put consecutive blocks into an empty range from `start` on, up to `stop`; returns how many tokens that are.

        Each block is used before the next is taken. May be fewer than the blocks hold where a sliding window
        would be incomplete. Raises `EngineError` for bytes that are no blocks of this engine.
        """
        ...

    def save_state(self, seq: int) -> Block:
        """Everything that the memory has of a sequence. Raises `EngineError`."""
        ...

    def restore_state(self, seq: int, state: Block) -> bool:
        """Put a saved state into an empty sequence. False where the engine refuses it or has no room."""
        ...

    def set_threads(self, decode: int, prefill: int) -> None:
        """Threads for one-token and for many-token batches; takes effect at the next decode."""
        ...

    def abort(self) -> None:
        """Make the running decode stop soon. May be called from any thread."""
        ...

    def clear_abort(self) -> None:
        """Let decodes run again."""
        ...

    def rest(self) -> None:
        """Give back what only running work needs. Called on the worker's thread when there is nothing to do."""
        ...


class Output(Protocol):
    """Where the tokens of one sequence go. It turns them into text, and may steer what comes next."""

    def push(self, token: int, piece: bytes, control: bool) -> None:
        """Take the next token; `control` marks one that is no text."""
        ...

    def finish(self) -> None:
        """No more tokens come: hand out what was held back."""
        ...

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text, if one did."""
        ...

    @property
    def constrained(self) -> bool:
        """Whether the constraint rules the next token (not while the model is still thinking)."""
        ...

    def forced_text(self) -> bytes:
        """Text that must come next whatever the model would say (the end of a thinking block over budget), or b""."""
        ...
