"""What is said of a prompt that is too long can be done, and makes sense for the model."""

from __future__ import annotations

import pytest

from localrun.engine.overflow import too_long


@pytest.mark.parametrize(
    ("n_tokens", "trained", "offered"),
    [
        (3000, 0, "--ctx 3512 makes it larger"),
        (3000, 8192, "--ctx 3512 makes it larger"),
        (8000, 8192, "--ctx 8192 makes it larger"),
        (8192, 8192, "the model was trained for 8,192 tokens: shorten the prompt"),
        (9000, 8192, "the model was trained for 8,192 tokens: shorten the prompt"),
    ],
)
def test_no_context_is_offered_beyond_what_the_model_was_trained_for(n_tokens: int, trained: int, offered: str) -> None:
    error = too_long(n_tokens, 2048, trained)
    assert error.message == f"the prompt has {n_tokens:,} tokens, the context holds 2,048"
    assert (error.hint or "").startswith(offered)
    assert "--on-overflow truncate-middle" in (error.hint or "")
