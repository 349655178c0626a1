"""Where a prompt may be cut, so that its logits do not depend on where it was.

Kernels compute rows in groups (of four, in llama.cpp's for repacked weights) and take what is left over one by one,
which rounds in another way; some only begin at eight rows (tiled K-quants), flash attention in tiles of 64. So a row's
bits depend on where it stands in its piece, and quantized models turn that into whole tenths of a logit. Cut at
multiples of `GROUP` and with a last piece that is long enough, every row of a prompt is computed in the same way
whatever was known before.

Knows counts of tokens; knows no sequence and no memory. Invariant: a piece begins at a multiple of `GROUP` wherever
the one before it did.
"""

from __future__ import annotations

GROUP = 8
"""Rows that kernels take together: a multiple of every group seen."""


def reusable(n_known: int, n_tokens: int, n_tail: int) -> int:
    """How many of the `n_known` first tokens of a prompt of `n_tokens` to go on from; the rest is computed.

    `n_tail` is the least length of a prompt's last piece. What is shorter than that was computed like a whole prompt
    that short, so it is no beginning of a longer one.
    """
    length = min(n_known, n_tokens - n_tail) // GROUP * GROUP
    return length if length >= n_tail else 0


def next_piece(pending: int, room: int, n_tail: int) -> int:
    """How many of the `pending` tokens of a prompt to compute now, at most `room`.

    What stays is as long as a last piece wherever the room allows it.
    """
    if pending <= room:
        return pending
    longest = max(0, min(room, pending - n_tail))
    return longest // GROUP * GROUP or room // GROUP * GROUP or room
