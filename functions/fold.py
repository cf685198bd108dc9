"""Derived state of a tag: a fold over its experiments, retests too.

Everything here follows from the records alone, in any order. `lab::audit` compares it with what is stored. A result
that ends, is taken back or is judged again changes it by `step`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from functions.experiments.rules.keeping import plausible_margin
from functions.experiments.rules.verdict import score
from functions.trust.rules.noise import Repeats, Sums, run_again, run_of_worker
from state.codes import code_of, noise_entry
from state.derived import Derived, Field
from state.noise import class_id
from state.records import COUNTERS, JUDGED, OPEN, RETESTED, Direction, Experiment

CONTRADICTED = "its further runs contradict the first: it is judged by their mean"
"""Reason of a value that is not the first run's."""


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
    state.counts.update(now.counts)
    state.counts.subtract(was.counts)
    state.scores |= dict.fromkeys(was.scores.keys() - now.scores.keys())
    state.scores |= {place: value for place, value in now.scores.items() if was.scores.get(place) != value}


def change(records: Iterable[tuple[Experiment, Experiment]], direction: Direction) -> Derived:
    """What changes where records, each as it was, become others."""
    state = Derived()
    for before, now in records:
        step(state, now, direction, before)
    return state


def largest_gain(before: float | None, keeps: int, e: Experiment) -> float | None:
    """The largest gain of a tag's keeps with one more, after `keeps` others.

    Gains of keeps that are provisional or contradicted do not count, nor implausible ones that were not confirmed.
    """
    gain, plausible = e.delta or 0.0, plausible_margin(before, keeps)
    is_sure = e.trust == "confirmed" or plausible is None or gain <= plausible
    counts = leads(e) and e.best_key is None and e.trust != "provisional" and e.reason != CONTRADICTED
    return gain if counts and is_sure and gain > (before or 0.0) else before


@dataclass
class ClassNoise:
    """Noise of one class of GPU."""

    sums: Sums
    """Of all code."""
    runs: dict[str, Repeats] = field(default_factory=dict)
    """Of each code, and in a swarm of each worker and code; see `state.codes.noise_entry`."""


def measure(noise: ClassNoise, code: str, worker_id: str | None, value: float) -> Sums:
    """Take one more run of a code in; answers the change of the sums. Runs come in the order in which they end."""
    own, name = noise.runs.get(code), noise_entry(code, worker_id)
    if worker_id is None:
        noise.runs[code], learned = run_again(own, value, noise.sums.without(own))
    else:
        its = noise.runs.get(name)
        noise.runs[code], noise.runs[name], learned = run_of_worker(own, its, value, noise.sums.without(its))
    noise.sums = noise.sums.with_(learned)
    return learned


def noise(records: Collection[Experiment]) -> dict[str, ClassNoise]:
    """Noise of each class of GPU, by its key, from a tag's experiments with their retests."""
    found = {_noise_key(e): ClassNoise(Sums()) for e in records}
    firsts = {e.experiment_id: e for e in records if e.retest_of is None}
    for run in sorted(records, key=lambda e: e.finished_at or 0.0):
        first = firsts[run.retest_of or run.experiment_id]
        if run.own_value is not None and _is_measured(run, first):
            measure(found[_noise_key(run)], code_of(first, first.best_key), run.worker_id, run.own_value)
    return found


def _is_measured(run: Experiment, first: Experiment) -> bool:
    """Whether a run counts among those of its code. A run that measured a claim is the claim's own value."""
    if run is first:
        return run.status in ("keep", "discard") and not run.is_claim
    was_claim = first.is_claim or (first.measured_by and (run.finished_at or 0) < (first.finished_at or 0))
    return run.is_evidence and first.status != "retracted" and not was_claim


def _noise_key(e: Experiment) -> str:
    return f"noise:{e.tag}:{class_id(e.gpu_class)}"


def _share(e: Experiment, direction: Direction) -> Derived:
    """What one experiment adds."""
    found = Derived()
    if e.retest_of is None:
        _count(e, found.counts)
        _place(e, direction, found.scores)
    if e.retest_of is not None and e.status not in OPEN:
        found.scores[f"retests:{e.tag}", e.experiment_id] = e.number
    else:
        listed = f"status:{e.tag}:{e.status}"
        found.scores |= {(index, e.experiment_id): e.number for index in (listed, f"{listed}:{e.category}")}
    if e.worker_id is not None:
        _of_swarm(e, e.worker_id, direction, found)
    return found


def _count(e: Experiment, counts: dict[Field, int]) -> None:
    """Counters of the tag, of the category and of the branch. The baseline and claims are counted apart."""
    tag, is_claim = f"tags:{e.tag}", e.is_claim and e.status == "discard"
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
    if e.status not in JUDGED or (e.is_claim and e.status == "discard"):
        return
    if e.finish_number is not None:
        scores[f"finished:{e.tag}", e.experiment_id] = e.finish_number
    if e.status not in ("keep", "discard") or e.judged is None:
        return
    value, of_key = score(e.judged, direction), f"{e.tag}:{e.best_key}" if e.best_key else e.tag
    scores[f"{'keeps' if leads(e) else 'beaten'}:{of_key}", e.experiment_id] = value
    if is_near(e):
        scores[f"near_misses:{e.tag}", e.experiment_id] = value


def is_near(e: Experiment) -> bool:
    """Whether a judged experiment is listed with its distance from the best; the best is no near miss of itself."""
    return e.status == "discard" and e.best_key is None and not e.repeats_best


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
