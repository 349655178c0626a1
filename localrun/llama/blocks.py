"""Blocks of a context's memory: a range of one sequence's positions as the engine writes it, and back.

The engine saves and replaces whole sequences only, so a block goes through a spare one that nobody else uses. Knows
contexts and the layout of their state; knows no tokens and no files. Invariant: what is put back stands at exactly the
positions it was taken from, or is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from localrun.llama.state import Section, UnknownLayoutError, between, parse

if TYPE_CHECKING:
    from localrun.engine.ports import Block
    from localrun.llama.context import LlamaContext

_VECTOR_CELLS = 64
"""Cells that kernels add up side by side, at most: CPU kernels take 8 to 32."""


def save_blocks(context: LlamaContext, seq: int, start: int, stop: int, block: int) -> list[Block]:
    """The cells of positions [start, stop) of `seq`, in blocks of `block` tokens.

    Raises `UnknownLayoutError` where this engine's memory cannot be cut into blocks.
    """
    return [_save(context, seq, first, first + block) for first in range(start, stop, block)]


def restore_blocks(
    context: LlamaContext, seq: int, start: int, blocks: Iterable[Block], stop: int | None = None
) -> int:
    """Put blocks back behind position `start` of `seq`, up to position `stop`; how many tokens that makes.

    With a sliding window, only as far as a window is complete. What was restored before a block that the engine
    refuses stays, but for a window. Raises `UnknownLayoutError` for bytes that are no block of these positions; `seq`
    is empty from `start` on then.
    """
    limit = stop if stop is not None else 1 << 31
    try:
        if context.memory_kind == "window":
            return _restore_window(context, seq, start, list(blocks), limit)
        at = start
        for block in blocks:
            sections = _sections(context, block, at)
            end = min(limit, sections[0].end)
            if end <= at or not _restore(context, seq, between(block, sections, [(at, end)] * len(sections))):
                break
            at = end
        return at - start
    except UnknownLayoutError:
        context.remove(seq, start, -1)
        raise


def _save(context: LlamaContext, seq: int, start: int, stop: int) -> Block:
    spare = _spare(context)
    context.copy(seq, spare, start, stop)
    try:
        state = context.save_state(spare)
    finally:
        context.remove(spare, 0, -1)
    sections = _sections(context, state, start)
    if sections[0].end != stop:
        raise UnknownLayoutError("the engine's state holds other positions than were asked for")
    if all(section.in_order for section in sections):
        return state
    # Beside other sequences the cells lie where there was room; a block has them in the order of their positions.
    return between(state, sections, [(start, stop)] * len(sections))


def _sections(context: LlamaContext, block: Block, start: int) -> list[Section]:
    """The sections of a block that begins at position `start`."""
    sections = parse(block)
    if len(sections) != (2 if context.memory_kind == "window" else 1):
        raise UnknownLayoutError(f"the engine's state has {len(sections)} sections")
    positions = sorted(sections[0].positions)
    if not positions or positions != list(range(start, start + len(positions))):
        raise UnknownLayoutError("the engine's state holds other positions than were asked for")
    return sections


def _restore(context: LlamaContext, seq: int, state: Block) -> bool:
    # The engine replaces a whole sequence: a block goes through the spare one.
    spare = _spare(context)
    if not context.restore_state(spare, state):
        return False
    context.copy(spare, seq, 0, -1)
    context.remove(spare, 0, -1)
    return True


def _restore_window(context: LlamaContext, seq: int, start: int, blocks: list[Block], limit: int) -> int:
    parsed: list[list[Section]] = []
    for block in blocks:
        parsed.append(_sections(context, block, parsed[-1][0].end if parsed else start))
    while parsed and not _window_is_whole(context, parsed, start, min(limit, parsed[-1][0].end)):
        parsed.pop()
    if not parsed:
        return 0
    end = min(limit, parsed[-1][0].end)
    # What lies before the last window is of no use to the window's memory, and may have no room there. It begins where
    # kernels that add up cells in vectors do not notice what is missing.
    bounds = [(start, end), (max(0, end - context.n_window) // _VECTOR_CELLS * _VECTOR_CELLS, end)]
    for block, sections in zip(blocks, parsed, strict=False):
        if not _restore(context, seq, between(block, sections, bounds)):
            context.remove(seq, start, -1)
            return 0
    return end - start


def _window_is_whole(context: LlamaContext, blocks: Sequence[list[Section]], start: int, last: int) -> bool:
    first = max(0, last - context.n_window)
    held = [position for block in blocks for position in sorted(block[1].positions) if first <= position < last]
    return first >= start and held == list(range(first, last))


def _spare(context: LlamaContext) -> int:
    """The sequence id that the engine leaves to us."""
    return context.n_seq_max - 1
