"""Tables for people, grep and awk: one line per row, at least two spaces between cells. And progress bars.

A progress bar is shown for long work, on a terminal only, on standard error.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from rich.cells import cell_len, set_cell_size

from triggers.cli.output import printable

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn
import contextlib
from collections.abc import Callable, Iterator

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
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    lines, out = table_lines(columns, rows, width)
    for line in lines:
        click.echo(line)
    if out:
        click.echo(f"(too wide for {width} columns: {', '.join(out)}; --json has all)", err=True)


def table_lines(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int
) -> tuple[list[str], list[str]]:
    """The head and a line for each row, and the names of columns that were left out with their values."""
    names = [column.name for column in columns]
    cells = [[" ".join(printable(cell).split()) or EMPTY for cell in row] for row in (names, *rows)]
    by_column = [*zip(*cells, strict=True)]
    widths = _widths(columns, by_column, width)
    lines = [
        GAP.join(_cell(row[nth], columns[nth], its) for nth, its in widths.items()).rstrip() for row in cells
    ]
    out = [name for nth, name in enumerate(names) if nth not in widths and not _is_empty(by_column[nth])]
    return lines, out


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns of a terminal."""
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


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
    text = cut(text, width)
    space = " " * (width - cell_len(text))
    return space + text if column.right else text + space


def bar(*more: ProgressColumn, stays: bool = False) -> Progress:
    """A bar with further columns before its time; it is gone at the end, unless it `stays`."""
    # here: a table does without them, and they take 0.2 s to import
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, soft_wrap=True, emoji=False)
    columns = (TextColumn("{task.description}"), BarColumn(), *more, TimeElapsedColumn())
    return Progress(*columns, console=console, transient=not stays, disable=not console.is_terminal)


@contextlib.contextmanager
def counting(first: str, doing: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show `first`, then `doing` with the count that the yielded function gets."""
    from rich.progress import TextColumn

    with bar(TextColumn("{task.fields[count]}")) as shown:
        task = shown.add_task(first, total=None, count="")
        of = "" if total is None else f" of {total:,}"
        yield lambda count: shown.update(
            task, description=doing, total=total, completed=count, count=f"{count:,}{of}"
        )
