"""Derived state: what experiments, retests too, add to the counters and indexes of their lab.

It is a fold over the records, in any order. A change of a record changes it by `step`, and `lab::audit` compares what
is stored with `rebuild`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from state.records import COUNTERS, JUDGED, OPEN, RETESTED, Counters, Direction, Experiment, score

COUNTED: Mapping[str, frozenset[str]] = {
    "tags": frozenset(Counters.model_fields),
    "swarm_workers": frozenset({"runs", "active"}),
}
"""Derived fields of hashes that hold other fields, too."""
Field = tuple[str, str]
"""A key without its lab, and a field of the hash or a member of the sorted set."""


@dataclass
class Derived:
    """Counts of hashes and scores of sorted sets, or a change of them."""

    counts: defaultdict[Field, int] = field(default_factory=lambda: defaultdict(int))
    scores: dict[Field, float | None] = field(default_factory=dict)
    """None: the member leaves."""

    def members(self, key: str) -> dict[str, float]:
        """A sorted set."""
        return {m: at for (of, m), at in self.scores.items() if of == key and at is not None}


def rebuild(records: Iterable[Experiment], direction: Direction) -> Derived:
    """The derived state of a tag with these records."""
    state = Derived()
    for record in records:
        step(state, record, direction)
    return state


def step(state: Derived, record: Experiment, direction: Direction, before: Experiment | None = None) -> None:
    """Take a record in; `before` is the same record as it was taken in last."""
    was = _share(before, direction) if before is not None else Derived()
    now = _share(record, direction)
    for name, n in now.counts.items():
        state.counts[name] += n
    for name, n in was.counts.items():
        state.counts[name] -= n
    for place in was.scores.keys() - now.scores.keys():
        state.scores[place] = None
    for place, value in now.scores.items():
        if was.scores.get(place) != value:
            state.scores[place] = value


def change(records: Iterable[tuple[Experiment, Experiment]], direction: Direction) -> Derived:
    """The change of derived state by these records, each before and after."""
    state = Derived()
    for before, now in records:
        step(state, now, direction, before)
    return state


def _share(e: Experiment, direction: Direction) -> Derived:
    """What one experiment adds."""
    found = Derived()
    if e.retest_of is not None and e.status not in OPEN:
        found.scores[f"retests:{e.tag}", e.experiment_id] = e.number
    else:
        found.scores[f"status:{e.tag}:{e.status}", e.experiment_id] = e.number
        found.scores[f"status:{e.tag}:{e.status}:{e.category}", e.experiment_id] = e.number
    if e.retest_of is None and e.status not in OPEN:
        _count(e, found.counts)
        _place(e, direction, found.scores)
    if e.worker_id is not None:
        _of_swarm(e, e.worker_id, direction, found)
    if e.contended and e.status not in OPEN:
        found.counts[f"tags:{e.tag}", "contended"] = 1
    return found


def _count(e: Experiment, counts: dict[Field, int]) -> None:
    """Counters of the tag, of the category and of the branch. The baseline and claims are counted apart."""
    tag, is_claim = f"tags:{e.tag}", e.status == "discard" and e.is_claim
    is_baseline = e.baseline and e.status == "keep"
    if e.status in COUNTERS:
        counts[tag, "baselines" if is_baseline else "claimed" if is_claim else COUNTERS[e.status]] = 1
    if e.status in JUDGED and not is_claim:
        counts[tag, "total"] = 1
        if not is_baseline:
            counts[f"categories:{e.tag}", f"{e.category}:total"] = 1
            counts[f"categories:{e.tag}", f"{e.category}:kept"] = int(e.status == "keep")
    if e.committed:
        counts[f"trace:{e.trace_id}", "length"] = 1
        counts[f"trace:{e.trace_id}", "kept"] = int(e.status == "keep")


def _place(e: Experiment, direction: Direction, scores: dict[Field, float | None]) -> None:
    """Places in the finish order, among the results by value, and among the near misses."""
    if e.status not in JUDGED or (e.status == "discard" and e.is_claim):
        return
    if e.finish_number is not None:
        scores[f"finished:{e.tag}", e.experiment_id] = e.finish_number
    if (value := judged_score(e, direction)) is None:
        return
    of_key = f"{e.tag}:{e.best_key}" if e.best_key else e.tag
    scores[f"{'keeps' if leads(e) else 'beaten'}:{of_key}", e.experiment_id] = value
    if e.status == "discard" and e.best_key is None and not e.repeats_best:
        scores[f"near_misses:{e.tag}", e.experiment_id] = value


def judged_score(e: Experiment, direction: Direction) -> float | None:
    """The value that a keep or discard was judged by, with lower = better; None: no value counts."""
    if e.status not in ("keep", "discard") or e.judged is None:
        return None
    return score(e.judged, direction)


def leads(e: Experiment) -> bool:
    """Whether it is a keep that beat the best of its time; else it is a keep of its branch only."""
    return e.status == "keep" and e.improved is not False


def _of_swarm(e: Experiment, worker_id: str, direction: Direction, found: Derived) -> None:
    """Runs of its worker, of its config, and its place among its worker's runs."""
    worker, is_judged = f"swarm_workers:{worker_id}", e.status in ("keep", "discard")
    is_run = is_judged or e.status == RETESTED or (e.status == "stopped" and e.retest_of is None)
    found.counts[worker, "runs"] = int(is_run)
    found.counts[worker, "active"] = int(e.status == "running")
    found.counts[f"tags:{e.tag}", "repeated"] = int(e.status == RETESTED)
    # a lost run is no trial, unless its result came late
    kind = "in_flight" if e.status == "running" else "trials"
    found.counts[f"configs:{e.tag}", f"{e.fingerprint}:{kind}"] = int(e.status != "lost")
    if is_judged and e.delta_bpb is not None:
        found.scores[f"worker_runs:{worker_id}", e.experiment_id] = score(e.delta_bpb, direction)
