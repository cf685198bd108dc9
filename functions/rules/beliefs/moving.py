"""What one finished run changes of one hypothesis: what it says by itself, and what pairs it makes possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from functions.rules.beliefs.evidence import is_outside, outcome_of, part_of
from functions.rules.beliefs.learning import after, after_outside
from functions.rules.beliefs.pairing import pairs
from functions.rules.beliefs.terms import FinishedRun, Terms
from state.records import Evidence, Hypothesis


@dataclass(frozen=True)
class Moved:
    """A hypothesis after a run."""

    hypothesis: Hypothesis
    waiting: Sequence[FinishedRun]
    """Its runs that wait for a reference run, oldest first."""
    unused: Sequence[FinishedRun]
    """Reference runs that no run was compared with, oldest first."""
    own: Evidence | None
    """What the run itself said."""


def moved(
    run: FinishedRun,
    h: Hypothesis,
    waiting: Sequence[FinishedRun],
    unused: Sequence[FinishedRun],
    terms: Terms,
    now: float,
) -> Moved:
    """A hypothesis with its newest evidence after a run; where that is a reference run, `unused` has it."""
    part, own = part_of(run, h, terms), None
    left, free = list(waiting), list(unused)
    if part == "counts" and (own := outcome_of(run, h, terms)) is not None:
        h = after(h, own, terms, now)
    if is_outside(run, h) and run.judged is not None:
        h = after_outside(h, run.judged)
    if part == "candidate":
        left.append(run)
    for candidate, reference in pairs(left, free, h):
        left.remove(candidate)
        free.remove(reference)
        if (said := outcome_of(candidate, h, terms, reference)) is not None:
            h = after(h, said, terms, now)
            own = said if candidate is run else own
    return Moved(h, left, free, own)
