"""A mask forbids the same tokens however often it comes back."""

from __future__ import annotations

import numpy as np
import pytest

from localrun.constraint import prepare
from localrun.constraint.masking import Masking
from tests.fakes import ByteTable


@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 0.5, 0.9, 1.0])
def test_the_first_and_every_later_time_a_mask_leaves_exactly_what_it_allows(share: float) -> None:
    masking = Masking(prepare(ByteTable()).tables)
    n = ByteTable.n_tokens
    rng = np.random.default_rng(7)
    masks = [rng.random(n) < share for _ in range(20)]
    for allowed in [*masks, *masks[-3:], *masks[-3:], *masks]:
        logits = rng.normal(size=n).astype(np.float32)
        expected = np.where(allowed, logits, -np.inf)
        masking.apply(logits, np.packbits(allowed, bitorder="little"))
        assert np.array_equal(logits, expected)
