"""What happens when a sequence no longer fits in the context.

Knows token positions; knows no text. Invariants: nothing is dropped without a notice, and the first tokens stay.

Keeping the first tokens as attention sinks is from StreamingLLM (Xiao et al., 2023).
"""

from __future__ import annotations

from localrun.engine.events import Notice
from localrun.engine.ports import Backend
from localrun.engine.sequence import Sequence
from localrun.errors import ContextOverflowError

_ANSWER = 512
"""Tokens for the answer, in the context that a hint proposes."""
_SINKS = 4
"""StreamingLLM's number of initial tokens that must stay."""


def n_kept(n_prompt: int, limit: int) -> int:
    """How many first tokens stay: the prompt's beginning, up to a quarter of the context, at least the sinks."""
    return min(limit // 2, max(min(n_prompt, limit // 4), _SINKS))


def truncate_middle(sequence: Sequence, limit: int) -> Notice:
    """Cut the middle out of a prompt that is too long, so that half of the context is left for the answer.

    Changes `sequence` before it is computed. The end is worth more than the beginning: the question stands there.
    """
    total = len(sequence.tokens)
    room = max(2, limit - max(1, min(limit // 2, sequence.params.max_tokens or limit // 2)))
    head = n_kept(total, room)
    tail = room - head
    sequence.tokens = sequence.tokens[:head] + sequence.tokens[total - tail :]
    sequence.n_prompt = len(sequence.tokens)
    return Notice(
        "prompt_truncated",
        f"the prompt of {total:,} tokens was cut to {room:,}: tokens {head:,} to {total - tail - 1:,} are missing",
    )


def shift(sequence: Sequence, backend: Backend, *, may_move: bool) -> Notice | None:
    """Drop half of what follows the kept beginning, so that the sequence can go on.

    With `may_move`, the cells behind the gap are moved (their positions are rotated); else they are computed again.
    Returns a notice the first time.
    """
    limit = backend.n_ctx_seq
    keep = n_kept(sequence.n_prompt, limit)
    gap = max(1, (len(sequence.tokens) - keep) // 2)
    first_time = sequence.n_dropped == 0
    computed = sequence.n_computed
    moved = may_move and backend.can_shift and computed >= keep + gap and backend.memory_kind == "full"
    if moved:
        backend.remove(sequence.slot, keep, keep + gap)
        backend.shift(sequence.slot, keep + gap, -1, -gap)
        sequence.n_computed = computed - gap
    elif backend.memory_kind == "full" and backend.remove(sequence.slot, keep, -1):
        sequence.n_computed = min(computed, keep)
    else:
        backend.remove(sequence.slot, 0, -1)
        sequence.n_computed = 0
    del sequence.tokens[keep : keep + gap]
    sequence.n_dropped += gap
    sequence.n_prompt = min(sequence.n_prompt, max(keep, sequence.n_prompt - gap))
    if not first_time:
        return None
    return Notice(
        "context_shifted",
        f"the context of {limit:,} tokens was full: the first {keep:,} tokens stay, the oldest after them are dropped",
    )


def too_long(n_tokens: int, limit: int, trained: int) -> ContextOverflowError:
    """The error of a prompt that is longer than the context, for a model trained for `trained` tokens (0: unknown)."""
    if trained and n_tokens >= trained:
        hint = (
            f"the model was trained for {trained:,} tokens: shorten the prompt, "
            "or let --on-overflow truncate-middle cut it"
        )
    else:
        enough = min(n_tokens + _ANSWER, trained or n_tokens + _ANSWER)
        hint = f"--ctx {enough} makes it larger; --on-overflow truncate-middle cuts the prompt"
    return ContextOverflowError(f"the prompt has {n_tokens:,} tokens, the context holds {limit:,}", hint=hint)
