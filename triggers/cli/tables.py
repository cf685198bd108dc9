"""Tables for people, grep and awk: one line per row, at least two spaces between cells."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click
from rich.cells import cell_len, set_cell_size

from triggers.cli.output import printable

PIPE_WIDTH = 100
"""Width of a table in a pipe or a file."""
SHORTEST_TEXT = 4
GAP = "  "
EMPTY = "-"


@dataclass(frozen=True)
class Column:
    """One column. Only a text is shortened, never an id or a word."""

    name: str
    right: bool = False
    """For numbers."""
    text: int = 0
    """Least width of a long text while other columns can be left out. 0: never shortened."""
    spare: int = 0
    """Order in which columns are left out if the table is too wide, the highest first. 0: never."""


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print rows within the width of the terminal, or PIPE_WIDTH. Ids and numbers are never shortened.

    Says on standard error which columns were left out, unless they are empty.
    """
    names = [column.name for column in columns]
    cells = [[" ".join(printable(cell).split()) or EMPTY for cell in row] for row in (names, *rows)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    by_column = [*zip(*cells, strict=True)]
    widths = _widths(columns, by_column, width)
    for row in cells:
        parts = [_cell(row[nth], columns[nth], its) for nth, its in widths.items()]
        click.echo(GAP.join(parts).rstrip())
    if out := [name for nth, name in enumerate(names) if nth not in widths and not _is_empty(by_column[nth])]:
        click.echo(f"(too wide for {width} columns: {', '.join(out)}; --json has all)", err=True)


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """The width of each shown column, by its index."""
    natural = [max(map(cell_len, column)) for column in cells]
    found = {
        nth: min(natural[nth], column.text) if column.text else natural[nth]
        for nth, column in enumerate(columns)
        if not (column.spare and _is_empty(cells[nth]))
    }

    def left() -> int:
        return width - sum(found.values()) - len(GAP) * (len(found) - 1)

    for nth in sorted(found, key=lambda nth: -columns[nth].spare):
        if left() < 0 and columns[nth].spare:
            del found[nth]
    texts = sorted((nth for nth in found if columns[nth].text), key=natural.__getitem__)
    for place, nth in enumerate(texts):
        share = left() // (len(texts) - place)  # below 0 where the rest alone is too wide
        found[nth] = min(natural[nth], max(SHORTEST_TEXT, found[nth] + share))
    return found


def _is_empty(column: Sequence[str]) -> bool:
    return {*column[1:]} == {EMPTY}


def _cell(text: str, column: Column, width: int) -> str:
    if cell_len(text) > width:
        text = f"{set_cell_size(text, width - 1).rstrip()}…"
    space = " " * (width - cell_len(text))
    return space + text if column.right else text + space
