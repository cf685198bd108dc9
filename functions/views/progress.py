"""The points of the progress plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from functions.rules.keeps.verdict import score
from state.records import Direction, Result


@dataclass(frozen=True)
class Point:
    """One judged run, `best` being the running best after it."""

    nth: int
    """Place in finish order, counted from 1."""
    value: float
    kept: bool
    best: float | None
    label: str


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


def points(finished: Sequence[Result], direction: Direction) -> list[Point]:
    """Every run that has a value, in finish order; crashes leave a gap in the numbers."""
    drawn: list[Point] = []
    best: float | None = None
    for e in finished:
        if e.val_bpb is None or e.judged is None or e.finish_number is None:
            continue
        kept = e.status == "keep"
        if kept and (best is None or score(e.judged, direction) < score(best, direction)):
            best = e.judged
        drawn.append(Point(e.finish_number, e.val_bpb, kept, best, e.description))
    return drawn
