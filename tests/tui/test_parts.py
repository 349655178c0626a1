"""The parts of the screen that need no screen."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from localrun.chat.conversation import ConversationEvent, Room
from localrun.chat.conversation.commands import COMMANDS, as_message, as_typed, parse
from localrun.chat.conversation.meter import visible
from localrun.errors import EngineError, OfflineError, UsageError
from localrun.responder import ReasoningPiece, TextPiece
from localrun.tui.bridge import Bridge, Ended, Failed, Update
from localrun.tui.collector import calm
from localrun.tui.models import LocalModels, _Cancelled, _Watch, fit
from localrun.tui.widgets.answer_markdown import PART_CHARACTERS, block_starts, code_blocks, grown_parts, in_parts
from localrun.tui.widgets.completion import MAX_SHOWN, command_completions, file_completions
from localrun.tui.widgets.status_line import Status, status_content
from localrun.tui.words import day_words, size_words


def all_updates(bridge: Bridge) -> list[Update]:
    updates: list[Update] = []
    while not updates or not isinstance(updates[-1], Ended):
        updates += bridge.take()
    return updates


def test_pieces_that_nobody_took_are_joined_in_order() -> None:
    bridge = Bridge()
    done = threading.Event()

    def events() -> Iterator[ConversationEvent]:
        yield ReasoningPiece("a")
        yield ReasoningPiece("b")
        yield TextPiece("c")
        yield TextPiece("d")
        yield ReasoningPiece("e")
        done.set()

    bridge.start(events)
    done.wait()
    bridge.join(5)
    assert bridge.take() == [ReasoningPiece("ab"), TextPiece("cd"), ReasoningPiece("e"), Ended()]
    assert bridge.is_busy
    bridge.release()
    assert not bridge.is_busy


def test_an_error_and_a_bug_arrive_as_updates_and_the_bridge_is_free_again() -> None:
    bridge = Bridge()

    def error() -> Iterator[ConversationEvent]:
        raise EngineError("boom")
        yield  # pragma: no cover

    def bug() -> Iterator[ConversationEvent]:
        yield TextPiece("x")
        raise KeyError("oops")

    bridge.start(error)
    failed, ended = all_updates(bridge)
    assert isinstance(failed, Failed)
    assert failed.error.message == "boom"
    assert isinstance(ended, Ended)
    bridge.release()
    bridge.start(bug)
    updates = all_updates(bridge)
    assert [type(update) for update in updates] == [TextPiece, Failed, Ended]
    assert isinstance(updates[1], Failed)
    assert "KeyError" in updates[1].error.message


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 100, 160])
def test_the_status_line_fits_and_cuts_no_number(width: int) -> None:
    status = Status(
        model="a-model-with-a-long-name:13b-instruct-q4_k_m",
        temperature=0.8,
        grammar="dates",
        room=Room(1203, 512, 4096),
        meter=("reused 3,912 of 4,020 tokens", "42.0 tokens/s", "TTFT 0.21 s"),
    )
    plain = status_content(status, width).plain
    parts = plain.split(" · ")
    assert len(parts) == 1 or cell_len(plain) <= width
    for part in parts:
        assert any(
            part.endswith(whole)
            for whole in (status.model, "T 0.8", "grammar dates", "1,203 + 512 of 4,096", *status.meter)
        )


def test_the_gauge_warns_before_the_context_is_full() -> None:
    calm = status_content(Status(model="m", room=Room(100, 10, 1000)), 120)
    full = status_content(Status(model="m", room=Room(700, 200, 1000)), 120)
    assert "$warning" not in str(calm.spans)
    assert "$warning" in str(full.spans)


TEXT = "\n\n".join(
    ["# Title", "word " * 300, "```py\n" + "x = 1\n\n" * 400 + "```", "- a\n\n  b\n- c", "> q\n\nend"] * 3
)


def test_a_text_is_cut_between_blocks_only() -> None:
    parts = in_parts(TEXT)
    assert "".join(parts) == TEXT
    assert len(parts) > 3
    assert [code for part in parts for code in code_blocks(part)] == code_blocks(TEXT)
    assert in_parts("short") == ["short"]
    assert in_parts("") == [""]


@pytest.mark.parametrize("step", [1, 4, 33, 5000])
def test_a_growing_text_is_cut_between_blocks_only_and_what_is_shown_stays_where_it_is(step: int) -> None:
    parts = [""]
    for begin in range(0, len(TEXT), step):
        head, *more = grown_parts(parts[-1], TEXT[begin : begin + step])
        parts[-1] += head
        parts += more
    assert "".join(parts) == TEXT
    assert len(parts) > 3
    assert [code for part in parts for code in code_blocks(part)] == code_blocks(TEXT)


def test_one_huge_block_stays_whole() -> None:
    fence = "```\n" + "x\n" * PART_CHARACTERS + "```"
    assert in_parts(fence) == [fence]
    assert block_starts("a\n\nb\n\n- c\n- d") == [0, 2, 4]


def test_commands_that_begin_with_what_was_typed_come_first() -> None:
    assert command_completions("te")[0].label == "/temp NUMBER"
    assert len(command_completions("")) == MAX_SHOWN
    assert command_completions("nothing") == []


def test_files_are_completed_folders_first_and_hidden_ones_on_request(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "source.py").write_text("")
    (tmp_path / ".secret").write_text("")
    (tmp_path / "src" / "deep.py").write_text("")
    assert [completion.replacement for completion in file_completions("s", tmp_path)] == ["src/", "source.py"]
    assert [completion.replacement for completion in file_completions("src/", tmp_path)] == ["src/deep.py"]
    assert [completion.replacement for completion in file_completions(".", tmp_path)] == [".secret"]
    assert file_completions("missing/", tmp_path) == []
    assert file_completions("~nobody-of-that-name/", tmp_path) == []


@pytest.mark.parametrize(
    ("line", "name", "argument"),
    [("/temp 0.5", "temp", "0.5"), ("  /HELP ", "help", ""), ("/exit", "quit", ""), ("/system a\nb", "system", "a\nb")],
)
def test_commands_are_read(line: str, name: str, argument: str) -> None:
    command = parse(line)
    assert command is not None
    assert (command.name, command.argument) == (name, argument)


@pytest.mark.parametrize("line", ["hello", "//etc/passwd", "//help", " //", "a /help", ""])
def test_what_only_looks_like_a_command_is_a_message(line: str) -> None:
    assert parse(line) is None


@pytest.mark.parametrize("line", ["/etc/passwd", "/nope/export", "/", "/ help", "/2+2", " /export/ now", "/é"])
def test_one_slash_is_never_a_message(line: str) -> None:
    with pytest.raises(UsageError, match="no command /") as caught:
        parse(line)
    assert "begin with // to send it as text" in (caught.value.hint or "")


def test_an_unknown_command_is_an_error_that_helps() -> None:
    with pytest.raises(UsageError, match="no command /exprot") as caught:
        parse("/exprot x")
    assert caught.value.hint == "did you mean /export?"
    assert as_message("//x") == "/x"
    assert as_typed("/x") == "//x"
    assert as_typed("x/") == "x/"
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)


def test_control_characters_are_shown_and_everything_else_is_left_alone() -> None:
    assert visible("a\x1b[0m\x07\x9b\x7f\n\t日本 👩‍👩‍👧‍👦") == "a␛[0m␇\ufffd\ufffd\n\t日本 👩‍👩‍👧‍👦"


def test_sizes_and_days_in_words() -> None:
    assert [size_words(n) for n in (0, 999, 1500, 98_000_000, 5_200_000_000)] == [
        "0 bytes",
        "999 bytes",
        "2 kB",
        "98 MB",
        "5.2 GB",
    ]
    day = 86_400.0
    noon = 20_000 * day + day / 2
    words = [day_words(noon - days * day, noon) for days in (0, 1, 3, 20, 200)]
    assert words == ["Today", "Yesterday", "This week", "This month", "Earlier"]


# The shelf of real models


def test_the_catalogue_is_on_the_shelf_with_its_default() -> None:
    choices = LocalModels().choices()
    assert sum(choice.is_default for choice in choices) == 1
    assert all(choice.fit in ("fits", "tight", "too big", "unknown") for choice in choices)


def test_nothing_is_fetched_offline() -> None:
    shelf = LocalModels(offline=True)
    name = next(choice.name for choice in shelf.choices() if not choice.is_here)
    assert not shelf.has(name)
    with pytest.raises(OfflineError):
        shelf.fetch(name, lambda done, total: None, lambda: False)


def test_a_download_that_is_no_longer_wanted_ends_at_the_next_byte() -> None:
    heard: list[tuple[int, int | None]] = []
    cancelled = threading.Event()
    watch = _Watch(lambda done, total: heard.append((done, total)), cancelled.is_set)
    watch.start("model", 100, 10)
    watch.update(20)
    cancelled.set()
    with pytest.raises(_Cancelled):
        watch.update(30)
    assert heard == [(10, 100), (20, 100)]


@pytest.mark.parametrize(("size", "words"), [(None, "unknown"), (100, "fits"), (700, "tight"), (900, "too big")])
def test_what_fits_is_told_from_the_size(size: int | None, words: str) -> None:
    assert fit(size, 1000) == words


def test_the_collector_is_left_as_it_was() -> None:
    before = gc.get_threshold()
    with calm():
        assert gc.get_threshold() != before
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
