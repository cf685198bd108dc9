"""Checks a swarm: its workers, what they were handed out, its configs' counts and who leads, against the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from functions.rules.keeps.verdict import score
from state.records import RETESTED, Direction, Experiment, SwarmWorker

WITH_DELTA = frozenset({"keep", "discard"})
COUNTED = frozenset({"keep", "discard", "measured", "stopped"})
"""How runs end that a worker is counted."""


@dataclass(frozen=True)
class SwarmSnapshot:
    """A tag's swarm as it was read."""

    tag: str
    direction: Direction
    runs: Sequence[Experiment]
    """Experiments of the tag, those of its swarm among them."""
    workers: Sequence[SwarmWorker]
    handed_out: frozenset[str]
    """The index of runs that are handed out, of every tag."""
    leaders: Mapping[str, float] = field(default_factory=dict)
    """Best delta by worker, with lower = better."""
    worker_runs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The same of each worker's runs."""
    repeated: int = 0
    """Retests with a value, as the tag counts them."""
    configs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Trials and runs in flight, by fingerprint."""


def swarm_violations(s: SwarmSnapshot) -> Iterator[str]:
    """Every violation in one tag's swarm, as text."""
    runs = {e.experiment_id: e for e in s.runs if e.worker_id is not None}
    yield from _handed_out(s, runs)
    yield from _workers(s, runs)
    repeated = sum(e.status == RETESTED for e in runs.values())
    if s.repeated != repeated:
        yield f"{s.tag}: the counter repeated says {s.repeated}, the records {repeated}"
    yield from _configs(s, runs)
    yield from _leaders(s, runs)


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
    counted = Counter(
        e.worker_id
        for e in runs.values()
        if e.status in COUNTED and not (e.status == "stopped" and e.retest_of)
    )
    active = Counter(e.worker_id for e in runs.values() if e.status == "running")
    for worker in s.workers:
        has = runs.get(worker.run_id or "")
        if worker.run_id is not None and (
            has is None or (has.status, has.worker_id) != ("running", worker.worker_id)
        ):
            yield f"{worker.worker_id} has {worker.run_id}, which is {_status(runs, worker.run_id)}"
        if worker.runs != counted[worker.worker_id]:
            yield (
                f"{worker.worker_id}: its record counts {worker.runs} runs, there are"
                f" {counted[worker.worker_id]}"
            )
        if worker.active != active[worker.worker_id]:
            yield (
                f"{worker.worker_id}: its record counts {worker.active} runs that go on, there are"
                f" {active[worker.worker_id]}"
            )
    numbers = sorted(w.number for w in s.workers)
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"{s.tag}: its workers have the numbers {numbers}"


def _configs(s: SwarmSnapshot, runs: Mapping[str, Experiment]) -> Iterator[str]:
    """A lost run is no trial, unless its result came late."""
    in_flight = Counter(e.fingerprint for e in runs.values() if e.status == "running")
    trials = Counter(e.fingerprint for e in runs.values() if e.status not in ("running", "lost"))
    for name in sorted({str(f) for f in (*in_flight, *trials)} | s.configs.keys()):
        said, have = s.configs.get(name, (0, 0)), (trials[name], in_flight[name])
        if said != have:
            yield f"{s.tag}: the config {name[:7]} counts {said} trials and runs in flight, there are {have}"


def _leaders(s: SwarmSnapshot, runs: Mapping[str, Experiment]) -> Iterator[str]:
    have: dict[str, dict[str, float]] = {}
    for e in runs.values():
        if e.status in WITH_DELTA and e.worker_id is not None and e.delta_bpb is not None:
            have.setdefault(e.worker_id, {})[e.experiment_id] = score(e.delta_bpb, s.direction)
    for worker in s.workers:
        name = worker.worker_id
        if s.worker_runs.get(name, {}) != have.get(name, {}):
            yield f"{name}: the index of its runs by delta and their records disagree"
        best = min(have[name].values()) if name in have else None
        if s.leaders.get(name) != best:
            yield f"{name} leads with {s.leaders.get(name)}, its best run has {best}"


def _status(runs: Mapping[str, Experiment], name: str) -> str:
    return runs[name].status if name in runs else "no run of it"
