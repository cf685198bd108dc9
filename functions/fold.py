"""Derived state of a tag that depends on the order of its results: the largest gain, and the noise."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from functions.experiments.rules.keeping import plausible_margin
from functions.trust.rules.noise import Repeats, run_again, run_of_worker, without
from state.derived import leads
from state.facts import Spread
from state.noise import class_id, code_of, noise_entry
from state.records import Experiment

CONTRADICTED = "its further runs contradict the first: it is judged by their mean"
"""Reason of a value that is not the first run's."""


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

    sums: Spread
    """Of all code."""
    runs: dict[str, Repeats] = field(default_factory=dict)
    """Of each code, and in a swarm of each worker and code; see `state.noise.noise_entry`."""


def measure(
    noise: ClassNoise, code: str, worker_id: str | None, value: float, steps: float | None = None
) -> Spread:
    """Take one more run of a code in; answers the change of the sums. Runs come in the order in which they end.

    `steps`: in a second of its training; None: not counted.
    """
    own, name = noise.runs.get(code), noise_entry(code, worker_id)
    if worker_id is None:
        noise.runs[code], learned = run_again(own, value, without(noise.sums, own), steps)
    else:
        its = noise.runs.get(name)
        noise.runs[code], noise.runs[name], learned = run_of_worker(own, its, value, without(noise.sums, its))
    noise.sums = noise.sums.with_(learned)
    return learned


def noise(records: Collection[Experiment]) -> dict[str, ClassNoise]:
    """Noise of each class of GPU, by its key, from a tag's experiments with their retests."""
    found = {_noise_key(e): ClassNoise(Spread()) for e in records}
    firsts = {e.experiment_id: e for e in records if e.retest_of is None}
    for run in sorted(records, key=lambda e: e.finished_at or 0.0):
        first = firsts[run.retest_of or run.experiment_id]
        if run.own_value is not None and _is_measured(run, first):
            code = code_of(first, first.best_key)
            measure(found[_noise_key(run)], code, run.worker_id, run.own_value, run.steps_per_s)
    return found


def _is_measured(run: Experiment, first: Experiment) -> bool:
    """Whether a run counts among those of its code. A run that measured a claim is the claim's own value."""
    if run is first:
        return run.status in ("keep", "discard") and not run.is_claim
    was_claim = first.is_claim or (first.measured_by and (run.finished_at or 0) < (first.finished_at or 0))
    return run.is_evidence and first.status != "retracted" and not was_claim


def _noise_key(e: Experiment) -> str:
    return f"noise:{e.tag}:{class_id(e.gpu_class)}"
