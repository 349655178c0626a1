"""Why a cached prefix was not found, in words."""

from __future__ import annotations

import pytest

from localrun.engine.events import Diverged
from localrun.local.reuse import explain, volatile


class Letters:
    def decode(self, tokens: list[int]) -> bytes:
        return bytes(tokens)


def test_an_early_divergence_is_shown_with_the_text_around_it() -> None:
    prompt = b"Today is 2026-11-29. " + b"x" * 200
    event = Diverged(9, tuple(prompt[9:60]), tuple(b"2026-11-28. " + b"x" * 40))
    line = explain(event, list(prompt), Letters())
    assert "token 9" in line
    assert "a date" in line


def test_a_new_question_at_the_end_needs_no_explanation() -> None:
    prompt = b"x" * 200 + b"why?"
    assert explain(Diverged(200, tuple(b"why?"), tuple(b"how?")), list(prompt), Letters()) == ""


@pytest.mark.parametrize(
    ("here", "there", "kind"),
    [
        ("it is Monday", "it is Sunday", "a day of the week"),
        ("at 12:30", "at 12:31", "a time of day"),
        ("id 0123456789abcdef", "id 0123456789abcdee", "an identifier"),
        ("a plain text", "another one", None),
        ("on 1.2.2026 then", "on 1.2.2026 else", None),
    ],
)
def test_volatile_text_is_named(here: str, there: str, kind: str | None) -> None:
    assert volatile(here, there) == kind
