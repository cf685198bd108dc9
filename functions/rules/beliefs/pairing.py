"""Which reference run a waiting run is compared with.

A worker's baseline is measured once, with its luck, and is in all of its deltas. Beside a reference run of the same
worker it cancels. Beside another worker's it does not: all pairs of a worker with a lucky baseline would go the same
way. So a run waits for a reference run of its own worker. Where many wait, since workers come and go, the oldest is
compared with another worker's, and each of the two is in no other such pair among the newest evidence: as far as no
pair shares a baseline with another one, each is won with probability 1/2 where nothing is true, whatever the past.
That does not hold of a claim of influence, which is won by distance, to either side: there no run is compared with
another worker's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from functions.rules.beliefs.evidence import comparable
from functions.rules.beliefs.influence import is_of_influence
from functions.rules.beliefs.terms import FinishedRun
from state.records import Hypothesis

PATIENCE = 8
"""Runs that wait for a reference run of their own worker before the oldest one is compared with another's."""
MOST_KEPT = 64
"""Runs that wait for a reference run, and unused reference runs, that are kept for one hypothesis each."""

Pair = tuple[FinishedRun, FinishedRun]
"""A run, and the reference run that it is compared with."""


def pairs(
    waiting: Sequence[FinishedRun], references: Sequence[FinishedRun], hypothesis: Hypothesis
) -> list[Pair]:
    """The pairs that can be made now, of waiting candidates and unused reference runs, each list oldest first.

    Which runs are paired depends on who made them and when, never on their values. Of those that are left, keep the
    newest MOST_KEPT of either list.
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
    """Whether the worker's next run had better be one of the reference config: one of its runs waits for it.

    Handed out so, half of a worker's runs are reference runs, and each run is compared with one of the same worker.
    """
    return _of(worker_id, waiting) > _of(worker_id, references)


def _across(alone: list[FinishedRun], unused: list[FinishedRun], hypothesis: Hypothesis) -> Iterator[Pair]:
    """Pairs across workers, until no more than PATIENCE runs wait."""
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
