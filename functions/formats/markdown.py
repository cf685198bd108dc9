"""Markdown, line by line: texts, tables, and untrusted words in code spans."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import ParamSpec

from functions.search.rules.suggestions import short

P = ParamSpec("P")


def text_of(lines: Callable[P, Iterator[str]]) -> Callable[P, str]:
    """Decorate a generator of lines: it answers them as one text."""

    @wraps(lines)
    def text(*given: P.args, **named: P.kwargs) -> str:
        return "\n".join(lines(*given, **named))

    return text


def table(names: Sequence[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """The lines of a table. Untrusted words in it are to be `code`."""
    yield _row(names)
    yield "|---" * len(names) + "|"
    yield from map(_row, rows)


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def code(text: str) -> str:
    """One line of untrusted text as a code span, safe in a table."""
    apart = re.sub(r"\\(?=\|)", r"\\ ", short(text, 200))  # a backslash before a bar would end the cell
    line = apart.replace("|", "\\|")
    if not line:
        return ""
    fence = "`" * (1 + longest_fence(line))
    edge = " " if len(fence) > 1 else ""
    return f"{fence}{edge}{line}{edge}{fence}"


def longest_fence(text: str) -> int:
    """Backquotes of the longest run of them in a text."""
    return max((len(run) for run in re.findall("`+", text)), default=0)
