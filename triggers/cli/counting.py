"""Progress bars for long work: on a terminal only, on standard error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn


def bar(*more: ProgressColumn, stays: bool = False) -> Progress:
    """A bar with further columns before its time; it is gone at the end, unless it `stays`."""
    console = Console(stderr=True, soft_wrap=True, emoji=False)
    columns = (TextColumn("{task.description}"), BarColumn(), *more, TimeElapsedColumn())
    return Progress(*columns, console=console, transient=not stays, disable=not console.is_terminal)


@contextlib.contextmanager
def counting(first: str, doing: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show `first`, then `doing` with the count that the yielded function gets."""
    with bar(TextColumn("{task.fields[count]}")) as shown:
        task = shown.add_task(first, total=None, count="")
        of = "" if total is None else f" of {total:,}"
        yield lambda count: shown.update(
            task, description=doing, total=total, completed=count, count=f"{count:,}{of}"
        )
