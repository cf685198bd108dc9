"""Checks a swarm: its workers, what they were handed out, its configs' counts and who leads, against the runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from state.derived import Derived
from state.records import Experiment, SwarmWorker


@dataclass(frozen=True)
class SwarmSnapshot:
    """A tag's swarm as it was read."""

    tag: str
    rebuilt: Derived
    """Derived state by its experiments."""
    runs: Sequence[Experiment]
    """Experiments of the tag, those of its swarm among them."""
    workers: Sequence[SwarmWorker]
    handed_out: frozenset[str]
    """The index of runs that are handed out, of every tag."""
    leaders: Mapping[str, float] = field(default_factory=dict)
    """Best delta by worker, with lower = better."""


def swarm_violations(s: SwarmSnapshot) -> Iterator[str]:
    """Every violation in one tag's swarm, as text."""
    runs = {e.experiment_id: e for e in s.runs if e.worker_id is not None}
    yield from _handed_out(s, runs)
    yield from _workers(s, runs)
    for worker in s.workers:
        best = min(s.rebuilt.members(f"worker_runs:{worker.worker_id}").values(), default=None)
        if s.leaders.get(worker.worker_id) != best:
            yield f"{worker.worker_id} leads with {s.leaders.get(worker.worker_id)}, its best run has {best}"


def _handed_out(s: SwarmSnapshot, runs: Mapping[str, Experiment]) -> Iterator[str]:
    running = {name for name, e in runs.items() if e.status == "running"}
    own = {name for name in s.handed_out if name.rpartition("-")[0] == s.tag}
    for stray in sorted(running ^ own):
        yield f"{stray} is {_status(runs, stray)}, but the index of runs that are handed out disagrees"


def _workers(s: SwarmSnapshot, runs: Mapping[str, Experiment]) -> Iterator[str]:
    known = {w.worker_id for w in s.workers}
    for e in runs.values():
        if e.worker_id not in known:
            yield f"{e.experiment_id} was handed out to {e.worker_id!r}, who is no worker of {s.tag!r}"
    for worker in s.workers:
        has = runs.get(worker.run_id or "")
        if worker.run_id is not None and (
            has is None or (has.status, has.worker_id) != ("running", worker.worker_id)
        ):
            yield f"{worker.worker_id} has {worker.run_id}, which is {_status(runs, worker.run_id)}"
    numbers = sorted(w.number for w in s.workers)
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"{s.tag}: its workers have the numbers {numbers}"


def _status(runs: Mapping[str, Experiment], name: str) -> str:
    return runs[name].status if name in runs else "no run of it"
