"""A table fits the terminal, and is whole in a pipe."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from localrun.cli.tables import table_lines

HEAD = ("NAME", "SIZE", "LICENCE", "ABOUT")
ROWS = [("smollm2:135m", "98 MB", "Apache-2.0", "words " * 12), ("qwen3:8b", "5.0 GB", "", "日本語" * 20)]


def test_a_pipe_gets_everything() -> None:
    lines = table_lines(HEAD, ROWS)
    assert lines[0] == "NAME          SIZE    LICENCE     ABOUT"
    assert lines[1].endswith(("words " * 12).rstrip())


@pytest.mark.parametrize("width", [30, 40, 60, 64, 80, 100, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = table_lines(HEAD, ROWS, width=width, spare=("LICENCE", "ABOUT", "SIZE"))
    assert max(map(cell_len, lines)) <= width
    assert lines[1].startswith("smollm2:135m")


def test_columns_go_in_their_order_and_prose_is_cut_at_the_end_alone() -> None:
    wide, narrow, least = (
        table_lines(HEAD, ROWS, width=width, spare=("LICENCE", "ABOUT"))[:2] for width in (80, 60, 30)
    )
    assert wide[0].split() == ["NAME", "SIZE", "LICENCE", "ABOUT"]
    assert narrow[0].split() == ["NAME", "SIZE", "ABOUT"]
    assert narrow[1].endswith("…")
    assert least == ["NAME          SIZE", "smollm2:135m  98 MB"]
