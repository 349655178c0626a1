"""What a model writes, watched for the texts that begin a call: special tokens count, reasoning does not."""

from __future__ import annotations

import pytest

from localrun.chat.reasoning import ReasoningFormat
from localrun.local.output import AnswerOutput
from localrun.local.tag_watch import Piece, TagWatch
from localrun.responder import ReasoningPiece, TextPiece

THINK = ReasoningFormat("<think>\n", "\n</think>\n\n")
HARMONY = ReasoningFormat(
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
    "<|channel|>final<|message|>",
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_what_comes_before_a_tag_is_let_through_however_it_is_cut(size: int) -> None:
    text = "a <tool <tool_ca x <tool_call>{}"
    watch = TagWatch(("<tool_call>",))
    pieces = [piece for i in range(0, len(text), size) for piece in watch.push(Piece(text[i : i + size], False))]
    assert "".join(piece.text for piece in pieces) == "a <tool <tool_ca x "
    assert watch.found == "<tool_call>"
    assert watch.finish() == []


def test_a_tag_that_does_not_come_leaves_everything_as_it_was() -> None:
    watch = TagWatch(("[CALLS]", "\n</p>", "</p>"))
    sent = [Piece("x", False), Piece("[CALL", True), Piece("\n<", False), Piece("/p", False)]
    got = [piece for piece in sent for piece in watch.push(piece)] + watch.finish()
    assert [(piece.text, piece.hidden) for piece in got if piece.hidden] == [("[CALL", True)]
    assert "".join(piece.text for piece in got) == "x[CALL\n</p"


def test_of_tags_that_end_together_the_longer_one_counts() -> None:
    watch = TagWatch(("</p>", "\n</p>"))
    assert [piece.text for piece in watch.push(Piece("text\n</p>", False))] == ["text"]
    assert watch.found == "\n</p>"


def told(tokens: list[str | bytes], form: ReasoningFormat | None, *tags: str) -> tuple[str, str, str | None]:
    """Text, reasoning and tag of an output; tokens that are bytes are special ones."""
    events: list[TextPiece | ReasoningPiece] = []
    output = AnswerOutput(events.append, tags=tags, form=form)
    for token in tokens:
        special = isinstance(token, bytes)
        output.push(0, token if isinstance(token, bytes) else token.encode(), special)
        if output.stopped is not None:
            break
    output.finish()
    assert "".join(event.text for event in events if isinstance(event, TextPiece)) == output.text
    return output.text, output.reasoning, output.stopped


def test_a_special_token_can_be_a_tag_and_is_shown_to_nobody() -> None:
    assert told(["Hi. ", b"[CALLS]", "[{"], None, "[CALLS]") == ("Hi. ", "", "[CALLS]")
    assert told(["Hi", b"<|x|>", "."], None, "[CALLS]") == ("Hi.", "", None)
    assert told(["Hi", b"<|m|>", "\n\nfunc", "tion"], None, "<|m|>\n\nfunction") == ("Hi", "", "<|m|>\n\nfunction")
    assert told(["Hi", b"<|m|>", "\n\nfun", "ny"], None, "<|m|>\n\nfunction") == ("Hi\n\nfunny", "", None)


def test_a_tag_inside_the_reasoning_is_reasoning() -> None:
    tokens: list[str | bytes] = ["<think>", "I could <tool_call>", "</think>", "\n\n", "Now: ", "<tool_call>"]
    assert told(tokens, THINK, "<tool_call>") == ("Now: ", "I could <tool_call>", "<tool_call>")


@pytest.mark.parametrize(
    "header",
    [
        [b"<|start|>", "assistant", b"<|channel|>", "commentary to=functions.f ", b"<|constrain|>", "json"],
        [b"<|start|>", "assistant to", "=functions.f", b"<|channel|>", "commentary json"],
    ],
)
def test_where_parts_have_headers_the_tag_is_told_from_an_answer(header: list[str | bytes]) -> None:
    thought: list[str | bytes] = [b"<|channel|>", "analysis", b"<|message|>", "to=functions.f?", b"<|end|>"]
    tokens = [*thought, *header, b"<|message|>", "{}"]
    assert told(tokens, HARMONY, "to=functions.") == ("", "to=functions.f?", "to=functions.")
    answer: list[str | bytes] = [
        b"<|start|>",
        "assistant",
        b"<|channel|>",
        "final",
        b"<|message|>",
        "Use to=functions.f.",
    ]
    assert told([*thought, *answer], HARMONY, "to=functions.") == ("Use to=functions.f.", "to=functions.f?", None)


def test_what_a_constraint_names_is_part_of_the_text() -> None:
    events: list[TextPiece | ReasoningPiece] = []
    output = AnswerOutput(events.append, shows_special=True)
    output.push(0, b"name", False)
    output.push(0, b"[ARGS]", True)
    output.finish()
    assert output.text == "name[ARGS]"
