"""The points of the progress plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from functions.rules.keeps.verdict import score
from state.records import Direction, Result

MOST_DOTS = 2000
"""Most points of a plot: more would overlap, and take seconds to draw."""
FINEST = 16_000
"""Number of dot-sized cells in a plot."""


@dataclass(frozen=True)
class Point:
    """One judged run, `best` being the running best after it."""

    nth: int
    """Place in finish order, counted from 1."""
    value: float
    kept: bool
    best: float | None
    label: str
    demoted: bool = False
    """It was kept, and a further run contradicted it."""


def window(drawn: Sequence[Point], direction: Direction) -> tuple[float, float] | None:
    """The range of values worth looking at: the way from the first run to the best, and as much again beyond.

    One failed idea far away would otherwise press everything else into a line. None where there is nothing to see.
    """
    kept = [p.value for p in drawn if p.kept]
    if not kept:
        return None
    low, high = min(kept), max(kept)
    span = (high - low) or abs(high) * 0.05 or 1.0
    near, far = 0.25 * span, 1.5 * span
    return (low - near, high + far) if direction == "minimize" else (low - far, high + near)


def thinned(drawn: Sequence[Point], seen: tuple[float, float] | None) -> Sequence[Point]:
    """At most MOST_DOTS of the points; of overlapping points the last.

    `seen` is the window of values; what lies beyond it is drawn at its edge.
    """
    cells: float = FINEST
    while len(drawn) > MOST_DOTS:
        drawn, cells = _one_in_each_cell(drawn, seen, cells), 0.7 * cells
    return drawn


def _one_in_each_cell(
    drawn: Sequence[Point], seen: tuple[float, float] | None, cells: float
) -> Sequence[Point]:
    """One keep (or demoted keep) and one other point of each cell, on a grid twice as wide as high."""
    rows = max(1.0, math.sqrt(cells / 2))
    low, high = seen or (min(p.value for p in drawn), max(p.value for p in drawn))
    begin, end = drawn[0].nth, drawn[-1].nth
    wide, tall = (end - begin + 1) / (2 * rows), high / rows - low / rows or 1.0
    found: dict[tuple[int, int, bool], Point] = {}
    for p in drawn:
        column, row = int((p.nth - begin) / wide), int(min(max(p.value, low), high) / tall - low / tall)
        found[column, row, p.kept or p.demoted] = p
    return sorted(found.values(), key=lambda p: p.nth)


def points(finished: Sequence[Result], direction: Direction) -> list[Point]:
    """Every run that has a value, in finish order; crashes leave a gap in the numbers."""
    drawn: list[Point] = []
    best: float | None = None
    for e in finished:
        if e.own_value is None or e.judged is None or e.finish_number is None:
            continue
        kept = e.status == "keep"
        if kept and (best is None or score(e.judged, direction) < score(best, direction)):
            best = e.judged
        drawn.append(
            Point(e.finish_number, e.own_value, kept, best, e.description, demoted=e.trust == "demoted")
        )
    return drawn


def crashes(finished: Sequence[Result]) -> list[int]:
    """The places of the newest runs that crashed or took too long, in finish order."""
    failed = [e.finish_number for e in finished if e.status in ("crash", "timeout")]
    return [nth for nth in failed if nth is not None][-MOST_DOTS:]
