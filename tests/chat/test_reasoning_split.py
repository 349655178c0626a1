"""Reasoning and answer are told apart while they stream, wherever the pieces are cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localrun.chat.reasoning import ReasoningFormat
from localrun.chat.reasoning_split import Part, ReasoningSplitter

THINK = ReasoningFormat("<think>\n", "\n</think>\n\n")
HARMONY = ReasoningFormat(
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
    "<|channel|>final<|message|>",
)
SOLAR = ReasoningFormat("<|think|>", "<|end|><|begin|>assistant<|content|>", "<|content|>")
GRANITE = ReasoningFormat("<think>\n", "\n</think>\n\n", "", ("<response>", "</response>"))


def split(form: ReasoningFormat | None, pieces: list[str], *, in_reasoning: bool = False) -> tuple[str, str]:
    splitter = ReasoningSplitter(form, in_reasoning=in_reasoning)
    parts: list[Part] = []
    for piece in pieces:
        parts += splitter.push(piece)
    parts += splitter.finish()
    return tuple("".join(p.text for p in parts if p.kind == kind) for kind in ("reasoning", "text"))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("form", "in_reasoning", "output", "reasoning", "text"),
    [
        (THINK, True, "x</think>y", "x", "y"),
        (THINK, True, "\nx\n</think>\n\ny\n", "x", "y\n"),
        (THINK, True, "never closed ", "never closed ", ""),
        (THINK, False, "<think>\nx\ny\n</think>\n\nz", "x\ny", "z"),
        (THINK, False, "\n<think></think>z", "", "z"),
        (THINK, False, " plain answer", "", " plain answer"),
        (THINK, False, "<thin", "", "<thin"),
        (THINK, False, "<thinner", "", "<thinner"),
        (THINK, False, "a </think> b", "", "a  b"),
        (THINK, False, "<think>x</think>y</think>z", "x", "yz"),
        (THINK, False, "x <think>quoted</think> y", "", "x <think>quoted</think> y"),
        (THINK, True, "x</think>a `<think>` and `</think>` b", "x", "a `<think>` and `</think>` b"),
        (THINK, True, "a < b </ c </think>d", "a < b </ c", "d"),
        (None, False, "<think>x</think>y", "", "<think>x</think>y"),
        (
            HARMONY,
            False,
            "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>y",
            "x",
            "y",
        ),
        (HARMONY, False, "<|channel|>final<|message|>y", "", "y"),
        (HARMONY, False, "<|channel|>analysis<|message|>x", "x", ""),
        (HARMONY, False, "plain", "", "plain"),
        (HARMONY, False, "< 5", "", "< 5"),
        (HARMONY, False, "<", "", "<"),
        (
            HARMONY,
            False,
            "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>commentary<|message|>c<|end|>"
            "<|start|>assistant<|channel|>analysis<|message|>z<|end|><|start|>assistant<|channel|>final<|message|>y",
            "xz",
            "cy",
        ),
        (SOLAR, False, "<|think|>x<|end|><|begin|>assistant<|content|>y", "x", "y"),
        (SOLAR, False, "<|content|>y", "", "y"),
        (GRANITE, False, "<think>x</think><response> y </response>", "x", "y "),
    ],
)
def test_an_output_is_split_however_it_is_cut(
    form: ReasoningFormat | None, in_reasoning: bool, output: str, reasoning: str, text: str
) -> None:
    for pieces in ([output], list(output), [output[i : i + 3] for i in range(0, len(output), 3)]):
        assert split(form, pieces, in_reasoning=in_reasoning) == (reasoning, text)


PARTS = ["<think>", "</think>", "<th", "ink>", "</", "think", ">", "<", "\n", " ", "a", "日", "`"]


@settings(deadline=None)
@given(
    output=st.lists(st.sampled_from(PARTS), max_size=12).map("".join),
    in_reasoning=st.booleans(),
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=8),
)
def test_the_pieces_do_not_matter_and_no_stray_end_is_shown(output: str, in_reasoning: bool, cuts: list[int]) -> None:
    pieces, position, n = [], 0, 0
    while position < len(output):
        pieces.append(output[position : position + cuts[n % len(cuts)]])
        position += len(pieces[-1])
        n += 1
    reasoning, text = split(THINK, pieces, in_reasoning=in_reasoning)
    assert (reasoning, text) == split(THINK, [output], in_reasoning=in_reasoning)
    assert "</think>" not in reasoning
    assert text.count("</think>") <= text.count("<think>")


def test_text_is_shown_as_soon_as_it_cannot_be_a_tag() -> None:
    splitter = ReasoningSplitter(THINK)
    assert splitter.push("Hel") == [Part("text", "Hel")]
    assert splitter.push("lo <") == [Part("text", "lo ")]
    assert splitter.push("b>") == [Part("text", "<b>")]


def test_a_constraint_begins_when_the_answer_does() -> None:
    splitter = ReasoningSplitter(THINK)
    states = [(splitter.in_reasoning, splitter.in_answer)]
    for piece in ("<think>", "x", "</think>"):
        splitter.push(piece)
        states.append((splitter.in_reasoning, splitter.in_answer))
    assert states == [(False, False), (True, False), (True, False), (False, True)]
    assert ReasoningSplitter(None).in_answer


def test_the_budget_counts_tokens_of_reasoning_only() -> None:
    splitter = ReasoningSplitter(THINK, in_reasoning=True, budget=2)
    over = []
    for piece in ("one", "", THINK.closing, "answer"):  # the second token ends inside a character
        splitter.push(piece)
        over.append(splitter.is_over_budget)
    assert over == [False, True, False, False]
    assert splitter.reasoning_tokens == 3  # the closing text was one piece


def test_a_budget_of_nothing_is_used_up_as_soon_as_the_block_is_open() -> None:
    assert ReasoningSplitter(THINK, in_reasoning=True, budget=0).is_over_budget
    undecided, opened = ReasoningSplitter(THINK, budget=0), ReasoningSplitter(THINK, budget=0)
    opened.push("<think>")
    assert (undecided.is_over_budget, opened.is_over_budget) == (False, True)
