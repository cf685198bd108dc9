"""Derived state: what experiments, retests too, add to the counters and indexes of their lab, and to a tag's budget.

It is a fold over the records, in any order. A change of a record changes it by `step`, and `lab::audit` compares what
is stored with `rebuild`. Sums of a budget are whole milliseconds, since adding floats loses bits.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from state.records import COUNTERS, JUDGED, OPEN, RETESTED, Counters, Direction, Experiment, Status, score

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

    counts: defaultdict[Field, int] = field(default_factory=partial(defaultdict, int))
    scores: dict[Field, float | None] = field(default_factory=dict)
    """None: the member leaves."""

    def members(self, key: str) -> dict[str, float]:
        """A sorted set."""
        return {m: at for (of, m), at in self.scores.items() if of == key and at is not None}


_NONE = Derived()


def rebuild(records: Iterable[Experiment], direction: Direction) -> Derived:
    """The derived state of a tag with these records."""
    state = Derived()
    for record in records:
        step(state, record, direction)
    return state


def step(state: Derived, record: Experiment, direction: Direction, before: Experiment | None = None) -> None:
    """Take a record in; `before` is the same record as it was taken in last."""
    now, was = _share(record, direction), _share(before, direction) if before is not None else _NONE
    for name, n in now.counts.items():
        state.counts[name] += n
    for name, n in was.counts.items():
        state.counts[name] -= n
    for place in was.scores:
        if place not in now.scores:
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
    value = e.judged if e.status in ("keep", "discard") else None
    return None if value is None else score(value, direction)


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


WARN_AT = 0.8
"""Share of a budget's limit, spent or reserved, at which one warning event is sent."""
REPORTED: frozenset[Status] = frozenset(
    {"keep", "discard", "crash", "timeout", "invalid", "retracted", "measured"}
)
"""Final statuses that follow from a reported result or crash."""
SET_ASIDE: frozenset[Status] = frozenset({"queued", "leased", "running"})
"""While Nightjar has an experiment to train, `budget_s` seconds and one run are set aside for it, and more seconds as
its run outlasts them in a tag whose GPU seconds are limited."""


@dataclass(frozen=True)
class Books:
    """Milliseconds of GPU time and runs."""

    reserved_ms: int = 0
    reserved_runs: int = 0
    spent_ms: int = 0
    spent_runs: int = 0

    def shift(self, tag: str) -> Derived:
        """The same as a change of a tag's counters."""
        counts = {
            "reserved_gpu_ms": self.reserved_ms,
            "spent_gpu_ms": self.spent_ms,
            "reserved_runs": self.reserved_runs,
            "spent_runs": self.spent_runs,
        }
        return Derived(defaultdict(int, {(f"tags:{tag}", name): by for name, by in counts.items()}))

    def __add__(self, other: Books) -> Books:
        return Books(
            self.reserved_ms + other.reserved_ms,
            self.reserved_runs + other.reserved_runs,
            self.spent_ms + other.spent_ms,
            self.spent_runs + other.spent_runs,
        )


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, rounded as the scripts round."""
    return math.floor(seconds * 1000 + 0.5)


def in_seconds(ms: int) -> str:
    """Milliseconds as a Redis hash holds them: seconds with three decimals."""
    return f"{ms / 1000:.3f}"


def books_of(e: Experiment, attempts: Mapping[int, Mapping[str, str]]) -> Books:
    """The part of one experiment in its tag's books.

    Seconds spent: for runs that Nightjar trained, the time from start to end of every ended attempt, lost ones too,
    by Redis' clock. For runs of agents and of swarms' workers, which have no attempt, the reported
    `training_seconds`. Runs spent: one for a finished experiment with a started attempt or a reported result.
    Reserved: `reserved_gpu_seconds` and one run of an open experiment. A retry needs no more than the first attempt
    had.
    """
    over = e.status not in OPEN
    held = e.reserved_gpu_seconds
    if e.attempt == 0:
        ran = is_spent(e.status, e.training_seconds)
        spent = milliseconds(e.training_seconds or 0.0) if ran else 0
    else:
        ran = over and any("started_at" in attempt for attempt in attempts.values())
        spent = sum(lasted(attempt) for attempt in attempts.values())
    return Books(
        reserved_ms=milliseconds(held) if held is not None else 0,
        reserved_runs=int(held is not None),
        spent_ms=spent,
        spent_runs=int(ran),
    )


def is_spent(status: Status, training_seconds: float | None) -> bool:
    """Whether a run without an attempt counts as spent: its result was reported, or a swarm's worker was stopped."""
    return status in REPORTED or (status == "stopped" and training_seconds is not None)


def lasted(attempt: Mapping[str, str]) -> int:
    """Milliseconds from an attempt's start to its end; 0 where it never began, or has not ended."""
    return between(attempt.get("started_at"), attempt["ended_at"]) if "ended_at" in attempt else 0


def between(started: str | None, ended: str | float) -> int:
    """Milliseconds from a start to an end, as they are stored; 0 where it never began."""
    return max(milliseconds(float(ended) - float(started)), 0) if started else 0
