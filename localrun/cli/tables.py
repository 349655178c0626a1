"""Tables of text: in full for a pipe, within the width of a terminal.

Knows cells and widths; knows no model. Invariants: a row is one line; a name is never cut; what a terminal has no room
for is left out by whole columns, and only the last column, which is prose, ends in an ellipsis.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

_GAP = 2
_PROSE = 30
"""Columns of prose that are worth showing."""


def terminal_width() -> int | None:
    """The width of the terminal on stdout; None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table_lines(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None = None, spare: Sequence[str] = ()
) -> list[str]:
    """The lines of a table. Where `width` is too small for it, the columns `spare` go first, in that order."""
    table = [list(head), *map(list, rows)]
    if width is not None:
        table = _without(table, spare, width)
    widths = [max(cell_len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = []
    for row in table:
        cells = [set_cell_size(cell, columns) for cell, columns in zip(row, widths, strict=True)]
        line = (" " * _GAP).join(cells).rstrip()
        if width is not None and cell_len(line) > width and table[0][-1] == head[-1]:
            line = set_cell_size(line, width - 1).rstrip() + "…"
        lines.append(line)
    return lines


def _without(table: list[list[str]], spare: Sequence[str], width: int) -> list[list[str]]:
    """The table without columns that are spare, as many as need be for the others to fit."""
    for name in spare:
        widths = [max(cell_len(row[column]) for row in table) for column in range(len(table[0]))]
        last = min(widths[-1], _PROSE)
        if sum(widths[:-1]) + last + _GAP * (len(widths) - 1) <= width:
            break
        gone = table[0].index(name)
        table = [row[:gone] + row[gone + 1 :] for row in table]
    return table
