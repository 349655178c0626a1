"""Models in memory, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localrun.llama.context import ContextOptions, LlamaContext
from localrun.llama.model import LlamaModel


@pytest.fixture(scope="session")
def model(smollm2: Path) -> Iterator[LlamaModel]:
    loaded = LlamaModel.load(smollm2)
    yield loaded
    loaded.close()


@pytest.fixture
def context(model: LlamaModel) -> Iterator[Callable[..., LlamaContext]]:
    """Makes contexts and closes them."""
    made: list[LlamaContext] = []

    def make(**options: Any) -> LlamaContext:
        values: dict[str, Any] = {
            "flash_attention": False,
            "n_ctx_seq": 512,
            "n_cells": 512,
            "n_cells_start": 512,
            "n_seq_max": 4,
            "n_batch": 256,
        }
        values |= {"n_ubatch": 256, "threads": 1, "threads_prefill": 1, **options}
        made.append(LlamaContext(model, ContextOptions(**values)))
        return made[-1]

    yield make
    for item in made:
        item.close()
