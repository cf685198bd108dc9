"""Pairs of a run and the reference run that it is compared with.

A worker's baseline is measured once, and its error is in all of the worker's deltas. The error cancels beside a
reference run of the same worker, so a run waits for one of these. Beside another worker's reference run it does not
cancel: all pairs of a worker with a lucky baseline would go the same way.

Workers come and go, so many runs may wait. Then the oldest one is compared with another worker's reference run. In
recent evidence each worker is in at most one such pair. So no two of them share a baseline, and for a claim that is
not true each is won with probability 1/2, whatever the past. This does not hold for claims of influence, which win by
a distance in either direction. Their runs are never compared with another worker's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from functions.rules.beliefs.evidence import comparable
from functions.rules.beliefs.influence import is_of_influence
from functions.rules.beliefs.terms import FinishedRun
from state.records import Hypothesis

PATIENCE = 8
"""Runs that may wait before the oldest one is compared with another worker's reference run."""
MOST_KEPT = 64
"""Waiting runs, and unused reference runs, that are kept for each hypothesis."""

Pair = tuple[FinishedRun, FinishedRun]
"""A run and its reference run."""


def pairs(
    waiting: Sequence[FinishedRun], references: Sequence[FinishedRun], hypothesis: Hypothesis
) -> list[Pair]:
    """The pairs that waiting candidates and unused reference runs, each oldest first, make now.

    Pairs depend on workers and time, never on values. Callers keep the newest MOST_KEPT of the runs that are left.
    """
    found: list[Pair] = []
    alone, unused = list(waiting), list(references)
    for run in waiting:
        own = (r for r in unused if r.worker_id == run.worker_id and comparable(run, r, hypothesis))
        if (reference := next(own, None)) is not None:
            found.append((run, reference))
            alone.remove(run)
            unused.remove(reference)
    return found if is_of_influence(hypothesis) else found + list(_across(alone, unused, hypothesis))


def wants_reference(
    worker_id: str, waiting: Sequence[FinishedRun], references: Sequence[FinishedRun]
) -> bool:
    """Whether the worker's next run should be a reference run, because one of its runs waits for one.

    Half of a worker's runs are then reference runs, and every run has a partner of the same worker.
    """
    return _of(worker_id, waiting) > _of(worker_id, references)


def _across(alone: list[FinishedRun], unused: list[FinishedRun], hypothesis: Hypothesis) -> Iterator[Pair]:
    """Pairs across workers, until at most PATIENCE runs wait."""
    crossed = {
        name
        for e in hypothesis.evidence
        if e.reference_worker_id not in (None, e.worker_id)
        for name in (e.worker_id, e.reference_worker_id)
    }
    for run in alone[:-PATIENCE]:
        if run.worker_id in crossed:
            continue
        others = (r for r in unused if r.worker_id not in crossed and comparable(run, r, hypothesis))
        if (reference := next(others, None)) is not None:
            crossed |= {run.worker_id, reference.worker_id}
            unused.remove(reference)
            yield run, reference


def _of(worker_id: str, runs: Sequence[FinishedRun]) -> int:
    return sum(run.worker_id == worker_id for run in runs)
