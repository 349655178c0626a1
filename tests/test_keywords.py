"""Errors of the Python interface speak of its keywords."""

from __future__ import annotations

from pathlib import Path

import pytest

import localrun
from localrun.errors import ContextOverflowError, UsageError
from localrun.keywords import as_keywords, in_keywords


@pytest.mark.parametrize(
    ("said", "in_python"),
    [
        (
            "--ctx 3543 makes it larger; --on-overflow truncate-middle cuts the prompt",
            'n_ctx=3543 makes it larger; on_overflow="truncate-middle" cuts the prompt',
        ),
        ("raise --max-tokens, or limit it with --think-budget", "raise max_tokens, or limit it with think_budget"),
        (
            "take a smaller --ctx or --parallel, or --kv-type q8_0",
            'take a smaller n_ctx or n_parallel, or kv_type="q8_0"',
        ),
        ("--ctx 4096 fits", "n_ctx=4096 fits"),
        ("--timeout 1.5.", "timeout_s=1.5."),
        ("`localrun list --catalog` shows all", "`localrun list --catalog` shows all"),
        ("a--ctx, --strict and ---ctx stay", "a--ctx, --strict and ---ctx stay"),
    ],
)
def test_flags_become_keywords_and_nothing_else_changes(said: str, in_python: str) -> None:
    assert as_keywords(said) == in_python


def test_message_and_hint_are_told_in_keywords() -> None:
    with pytest.raises(UsageError, match=r"^draft is odd$") as caught, in_keywords():
        raise UsageError("--draft is odd", hint="--draft ngram")
    assert caught.value.message == "draft is odd"
    assert caught.value.hint == 'draft="ngram"'


@pytest.mark.model
def test_a_prompt_that_is_too_long_is_told_in_keywords(smollm2: Path) -> None:
    with localrun.load(str(smollm2), n_ctx=256, threads=1) as model:
        with pytest.raises(ContextOverflowError) as caught:
            model.generate("word " * 600)
        assert 'on_overflow="truncate-middle"' in (caught.value.hint or "")
        assert "--" not in (caught.value.hint or "")
