"""What one finished run changes of one hypothesis: what it says by itself, and what pairs it makes possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from functions.rules.beliefs.evidence import is_outside, outcome_of, part_of
from functions.rules.beliefs.influence import is_of_influence
from functions.rules.beliefs.learning import after, after_outside, may_be_irrelevant, settled_irrelevant
from functions.rules.beliefs.pairing import pairs
from functions.rules.beliefs.terms import FinishedRun, Terms
from functions.rules.beliefs.whole_range import Blocks, is_irrelevant, with_run
from state.records import Evidence, Hypothesis


@dataclass(frozen=True)
class Moved:
    """A hypothesis with what is kept of its runs."""

    hypothesis: Hypothesis
    waiting: Sequence[FinishedRun]
    """Its runs that wait for a reference run, oldest first."""
    unused: Sequence[FinishedRun]
    """Reference runs that no run was compared with, oldest first."""
    blocks: Blocks = field(default_factory=dict)
    """Its runs and reference runs by worker and part of the range."""
    own: Evidence | None = None
    """What the newest run itself said."""


def moved(run: FinishedRun, before: Moved, terms: Terms, now: float) -> Moved:
    """A hypothesis with its newest evidence after a run; where that is a reference run, `unused` has it."""
    h, blocks = before.hypothesis, before.blocks
    part, own = part_of(run, h, terms), None
    left, free = list(before.waiting), list(before.unused)
    if part == "counts" and (own := outcome_of(run, h, terms)) is not None:
        h = after(h, own, now)
    if is_outside(run, h) and run.judged is not None:
        h = after_outside(h, run.judged)
    if part == "candidate" or any(r.experiment_id == run.experiment_id for r in free):
        blocks = with_run(blocks, run, h, terms)
    if part == "candidate":
        left.append(run)
    is_early = is_of_influence(h) and terms.usual_distance is None
    for candidate, reference in [] if is_early else pairs(left, free, h):
        left.remove(candidate)
        free.remove(reference)
        if (said := outcome_of(candidate, h, terms, reference)) is not None:
            h = after(h, said, now)
            own = said if candidate is run else own
    if blocks is not before.blocks and may_be_irrelevant(h) and is_irrelevant(blocks, h, terms):
        h = settled_irrelevant(h, now)
    return Moved(h, left, free, blocks, own)
