"""A progress bar for long work that counts things: on a terminal only, on standard error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


@contextlib.contextmanager
def counting(first: str, doing: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show `first`, then `doing` with the count that the yielded function gets; the bar is gone at the end."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"))
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(first, total=None, count="")
        of = "" if total is None else f" of {total:,}"
        yield lambda count: bar.update(
            task, description=doing, total=total, completed=count, count=f"{count:,}{of}"
        )
