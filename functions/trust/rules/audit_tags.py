"""Checks a tag's traces and a swarm against the experiments, and a simulated lab from outside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from functions.branches.rules.forest import is_node
from functions.experiments.rules.verdict import TOLERANCE
from functions.swarm.rules.trial_proposals import LEAST_GAIN, LEAST_RESULTS, WINDOW
from state.derived import Derived, Field, rebuild
from state.ids import OWN_LINE
from state.records import OPEN, Experiment, ForestRecords, SwarmWorker, Trace
from state.swarm_facts import RESULTS

# -- Checks a tag's traces: tips, bases, counters and leases against the experiments.

GROWING = ("live", "pending")


def forest_violations(mode: str, forest: ForestRecords, experiments: Sequence[Experiment]) -> Iterator[str]:
    nodes = {e.experiment_id: e for e in experiments}
    counts = rebuild(experiments, "minimize").counts
    yield from _index(mode, forest)
    yield from _leases(forest, nodes)
    for trace in forest.traces:
        yield from _stands(trace, nodes)
        yield from _counts(trace, forest, counts)
        yield from _made_for(trace, forest, experiments)
    traces = {trace.trace_id for trace in forest.traces}
    for e in experiments:
        yield from _made_from(e, nodes, traces)


def _index(mode: str, forest: ForestRecords) -> Iterator[str]:
    growing = {t.trace_id for t in forest.traces if t.status in GROWING and t.number != OWN_LINE}
    for own in (t for t in forest.traces if t.number == OWN_LINE):
        if mode == "multi" and own.status == "live":
            growing.add(own.trace_id)
    for stray in sorted(growing ^ forest.live):
        yield f"{stray}: its status and the index of growing traces disagree"


def _leases(forest: ForestRecords, nodes: Mapping[str, Experiment]) -> Iterator[str]:
    for name, ends in sorted(forest.open.items()):
        s = forest.selections.get(name)
        if s is None or s.status != "open":
            yield f"{name} is in the index of open selections, its record says {s.status if s else 'nothing'}"
            continue
        held = nodes.get(s.experiment_id) if s.experiment_id else None
        if s.experiment_id is None:
            if math.isinf(ends):
                yield f"{name} has no experiment, and its lease never ends"
        elif held is None or held.status not in OPEN or held.selection_id != name:
            yield f"{name} is held open by {s.experiment_id}, which is over or was made from another"
        elif not math.isinf(ends):
            yield f"{name} is held open by {s.experiment_id}, but its lease ends"
    for e in nodes.values():
        if e.status in OPEN and e.selection_id is not None and e.selection_id not in forest.open:
            yield f"{e.experiment_id} is {e.status}, its selection {e.selection_id} is over"


def _stands(trace: Trace, nodes: Mapping[str, Experiment]) -> Iterator[str]:
    for what, name in (("root", trace.root), ("tip", trace.tip), ("base", trace.base)):
        e = nodes.get(name) if name is not None else None
        if name is not None and (e is None or not is_node(e, e.status)):
            yield f"{trace.trace_id}: its {what} {name} is not a node"
        elif e is not None and what == "base" and e.status != "keep":
            yield f"{trace.trace_id}: its base {name} is a {e.status}"
        elif e is not None and what == "tip" and e.outdated:
            yield f"{trace.trace_id}: its tip {name} finished after its epoch"
    if trace.status == "live" and trace.tip is None:
        yield f"{trace.trace_id} is live without a node"


def _counts(trace: Trace, forest: ForestRecords, counts: Mapping[Field, int]) -> Iterator[str]:
    flying = sum(
        forest.selections[name].trace_id == trace.trace_id
        for name in forest.open
        if name in forest.selections
    )
    found = {name: counts[f"trace:{trace.trace_id}", name] for name in ("length", "kept")}
    for name, have in {**found, "in_flight": flying}.items():
        if getattr(trace, name) != have:
            yield f"{trace.trace_id}: {name} says {getattr(trace, name)}, the records {have}"


def _made_for(trace: Trace, forest: ForestRecords, experiments: Sequence[Experiment]) -> Iterator[str]:
    mine = {e.experiment_id for e in experiments if e.trace_id == trace.trace_id}
    for stray in sorted(mine ^ forest.made_for[trace.trace_id]):
        yield f"{stray} and the index of {trace.trace_id} disagree"


def _made_from(e: Experiment, nodes: Mapping[str, Experiment], traces: set[str]) -> Iterator[str]:
    if e.selection is None:
        return
    if e.parent_ids != e.selection.parent_ids:
        yield f"{e.experiment_id}: its parents are {e.parent_ids}, selected were {e.selection.parent_ids}"
    numbers = [nodes[parent].number for parent in e.parent_ids if parent in nodes]
    if e.local_selection != numbers:
        yield f"{e.experiment_id}: local_selection is {e.local_selection}, its parents' numbers {numbers}"
    if e.trace_id not in traces and (e.committed or e.status in OPEN):
        yield f"{e.experiment_id}: there is no trace {e.trace_id}"


# -- Checks a swarm: its workers, what they were handed out, its configs' counts and who leads, against the runs.


@dataclass(frozen=True)
class SwarmSnapshot:
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
    runs = {e.experiment_id: e for e in s.runs if e.worker_id is not None}
    yield from _handed_out(s, runs)
    yield from _workers(s, runs)
    bests = _bests(s.rebuilt)
    for worker in s.workers:
        best = bests.get(f"worker_runs:{worker.worker_id}")
        if s.leaders.get(worker.worker_id) != best:
            yield f"{worker.worker_id} leads with {s.leaders.get(worker.worker_id)}, its best run has {best}"


def _bests(rebuilt: Derived) -> Mapping[str, float]:
    """Lowest score of each sorted set, in one pass over all of them."""
    found = dict[str, float]()
    for (key, _), at in rebuilt.scores.items():
        if at is not None:
            found[key] = min(at, found.get(key, at))
    return found


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


# -- Checks a lab from outside: acknowledged results are there once, and the search stalls where the lab says so.

VALUED = frozenset({"keep", "discard", "measured", "retracted", "invalid"})
FAILED = frozenset({"crash", "timeout"})


@dataclass(frozen=True)
class Acknowledged:
    worker_id: str
    value: float | None
    """None: it failed."""
    is_stopped: bool = False
    """Its worker was told to stop: the record stays stopped, whatever came after."""

    @property
    def counts(self) -> bool:
        return self.is_stopped or self.value is not None


@dataclass(frozen=True)
class ShownRun:
    status: str
    value: float | None


def lost(acknowledged: Mapping[str, Acknowledged], stored: Mapping[str, ShownRun]) -> Iterator[str]:
    """Acknowledged results that the server lacks or shows differently, one text each."""
    for name, sent in acknowledged.items():
        found = stored.get(name)
        if found is None:
            yield f"{name} was acknowledged, and does not exist"
        elif not _agrees(sent, found):
            what = "stopped" if sent.is_stopped else "a failure" if sent.value is None else repr(sent.value)
            yield f"{name} was acknowledged as {what}, and is {found.status} with {found.value!r}"


def _agrees(sent: Acknowledged, found: ShownRun) -> bool:
    if sent.is_stopped:
        return found.status == "stopped"
    if sent.value is None:
        return found.status in FAILED
    return found.status in VALUED and found.value == sent.value


def miscounted(
    acknowledged: Mapping[str, Acknowledged], experiments: int | None, by_worker: Mapping[str, int]
) -> Iterator[tuple[int, str]]:
    """Wrong counts of the server, in all and by worker: the surplus (negative: too few) with a text.

    `experiments` is the server's count since the begin; None if other workers were active, too.
    """
    ours: dict[str, int] = {}
    for sent in acknowledged.values():
        ours[sent.worker_id] = ours.get(sent.worker_id, 0) + sent.counts
    expected = sum(ours.values())
    if experiments is not None and experiments != expected:
        yield (
            experiments - expected,
            f"the server counts {experiments} experiments, {expected} were acknowledged",
        )
    for worker_id, count in by_worker.items():
        if worker_id in ours and count != ours[worker_id]:
            text = (
                f"the server counts {count} experiments of {worker_id}, {ours[worker_id]} were acknowledged"
            )
            yield count - ours[worker_id], text


LATE = 10
"""Results that may come in while the lab decides."""


class SearchProgress:
    """The results and the bests of a tag that compares deltas and minimizes, in the order of their events."""

    def __init__(self) -> None:
        self._ended = list[str]()
        self._bests = list[tuple[str, float]]()
        self._improving = list[bool]()
        """After each result."""

    @property
    def results(self) -> int:
        return len(self._ended)

    def hear(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "best.changed":
            self._bests.append((data["experiment_id"], data["val_bpb"]))
        if kind == "experiment.finished" and data["status"] in RESULTS:
            self._ended.append(data["experiment_id"])
            self._improving.append(self._improves())

    @property
    def is_improving(self) -> bool:
        """Whether the search surely does not stall: it does not now, and did not ten results ago."""
        return self._improves() and all(self._improving[-1 - LATE : -LATE])

    def _improves(self) -> bool:
        """Whether the newest 50 results, or fewer than 25, have the best run, better than those before by 0.0005."""
        newest = set(self._ended[-WINDOW:])
        if self.results < LEAST_RESULTS:
            return True
        if not self._bests or self._bests[-1][0] not in newest:
            return False
        before = next((value for name, value in reversed(self._bests) if name not in newest), 0.0)
        return before - self._bests[-1][1] >= LEAST_GAIN + TOLERANCE
