"""Names of sessions."""

from __future__ import annotations

import pytest

from localrun.store.naming import MAX_CHARACTERS, name_from_exchange


@pytest.mark.parametrize(
    ("question", "answer", "name"),
    [
        ("How do tides work?", "", "How do tides work?"),
        ("hi", "# Welcome to tides\nText", "Welcome to tides"),
        ("Hello, please explain **tides**. Then stop.", "", "Explain tides"),
        ("\n\n```python\nprint(1)\n```", "", "Python"),
        ("- first item", "", "First item"),
        ("Hi there!", "", "Hi there!"),
        ("hello, how are you?", "Fine. How can I help?", "Fine"),
        ("hey again, what's up", "", "hey again, what's up"),
        ("good morning\nWhy is the sky blue?", "", "Why is the sky blue?"),
        ("Hi! Thanks. Now explain tides", "", "Now explain tides"),
        ("High tides", "", "High tides"),
        ("Test-driven development", "", "Test-driven development"),
        ("ping 8.8.8.8 fails", "", "Ping 8.8.8.8 fails"),
        ("test", "It works", "It works"),
        ("", "", "New chat"),
        ("?", "", "?"),
        ("日本の首都はどこですか", "", "日本の首都はどこですか"),
        ("\x1b[31mred", "", "[31mred"),
    ],
)
def test_a_name_comes_from_the_first_line_that_says_something(question: str, answer: str, name: str) -> None:
    assert name_from_exchange(question, answer) == name


@pytest.mark.parametrize("question", ["word " * 100, "x" * 1000, "a\tb\n" * 50, "🙂" * 300])
def test_a_name_is_one_short_line(question: str) -> None:
    name = name_from_exchange(question)
    assert 0 < len(name) <= MAX_CHARACTERS
    assert name.isprintable()
