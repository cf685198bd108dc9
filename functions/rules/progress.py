"""The points of the progress plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from functions.rules.verdict import score
from state.records import Direction, Experiment


@dataclass(frozen=True)
class Point:
    """One judged run, `best` being the running best after it."""

    nth: int
    """Place in finish order, counted from 1."""
    value: float
    kept: bool
    best: float | None
    label: str


def points(finished: Sequence[Experiment], direction: Direction) -> list[Point]:
    """Every run that has a value, in finish order; crashes leave a gap in the numbers."""
    drawn: list[Point] = []
    best: float | None = None
    for e in finished:
        if e.val_bpb is None or e.finish_number is None:
            continue
        kept = e.status == "keep"
        if kept and (best is None or score(e.val_bpb, direction) < score(best, direction)):
            best = e.val_bpb
        drawn.append(Point(e.finish_number, e.val_bpb, kept, best, e.description))
    return drawn
