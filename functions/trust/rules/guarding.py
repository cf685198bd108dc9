"""Guards: what a tag's runs must not break, and which of them a run has broken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from functions.trust.rules.noise import Mean, near_margin, pooled, standard_error
from state.facts import Comparison, RunFacts
from state.policy import Guards
from state.records import Direction, Experiment, score

SURE = 0.95
"""Confidence, one-sided, with which a slice has to be worse."""
UNCHECKED = "only a worker runs the guard's command: submit it"
HINT = "Mend it and try again; program.md names the guards of the tag."


@dataclass(frozen=True)
class BrokenGuard:
    guard: str
    reason: str


def in_words(guards: Guards, direction: Direction) -> list[str]:
    """The guards as sentences for agents."""
    found = [f"{name} has to be {how} {limit:g}" for name, how, limit, _ in _limits(guards)]
    if guards.check is not None:
        found.insert(0, f"`{guards.check}` has to pass within {guards.check_s:g} s, before the training")
    worse = "higher" if direction == "minimize" else "lower"
    return found + [
        f"{name} may not get {worse} than the best's by more than noise" for name in guards.slices
    ]


def broken_guard(
    value: float, measured: Mapping[str, Any], run: RunFacts, beside: Comparison
) -> BrokenGuard | None:
    """The first guard that a first run breaks; None: none, or it is the baseline, which others are compared with.

    A metric that is missing or NaN breaks its guard. A command that failed has ended the run before.
    """
    e, tag, guards = run.experiment, run.tag, run.policy.guards
    if e.baseline:
        return None
    is_claim = e.attempt == 0 and tag.takes_claims
    if guards.check is not None and not e.was_trained_here and not is_claim:
        return BrokenGuard("check", f"guard check: {UNCHECKED}")
    numbers = {tag.metric.lower(): value, **measured, **measured.get("metrics", {})}
    for name, how, limit, direction in _limits(guards):
        found = numbers.get(name.lower())
        if found is None:
            return _missing(name)
        if not score(found, direction) <= score(limit, direction):
            return BrokenGuard(name, f"guard {name}: it is {found:g} and has to be {how} {limit:g}")
    for name in guards.slices:
        found = numbers.get(name.lower())
        if found is None:
            return _missing(name)
        if (worse := _worse_slice(name, found, run, beside)) is not None:
            return worse
    return None


def _limits(guards: Guards) -> Iterator[tuple[str, str, float, Direction]]:
    """Metric, words and limit, with the direction in which it is better."""
    if guards.peak_vram_mb is not None:
        yield "peak_vram_mb", "at most", guards.peak_vram_mb, "minimize"
    for name, limit in guards.at_most.items():
        yield name, "at most", limit, "minimize"
    for name, limit in guards.at_least.items():
        yield name, "at least", limit, "maximize"


def _missing(name: str) -> BrokenGuard:
    return BrokenGuard(
        name, f"guard {name}: the run has no such metric; it has to print a line `{name}: NUMBER`"
    )


def _worse_slice(name: str, found: float, run: RunFacts, beside: Comparison) -> BrokenGuard | None:
    """A slice that is worse than that of the run's branch base, or else of the best; None: not beyond the noise.

    The noise of a slice is that of the repeats of the best and of the baseline (Student's t, one-sided). Until there
    are any, the near-miss margin counts.
    """
    groups = [(runs[0].experiment_id, _values(name, runs)) for runs in beside.guarded if runs]
    whose, values = next(((of, values) for of, values in groups if values), ("", []))
    if not values:
        return None
    direction, theirs = run.tag.direction, Mean(sum(values) / len(values), len(values))
    noise = pooled(values for _, values in groups)
    margin = near_margin(run.policy, beside.noise.noise)
    if noise is not None:
        from scipy.special import stdtrit

        margin = float(stdtrit(noise.df, SURE)) * standard_error(noise.sigma, 1, theirs.runs)
    if score(found, direction) <= score(theirs.value, direction) + margin:
        return None
    return BrokenGuard(
        name,
        f"guard {name}: it is {found:g}, which is worse than the {theirs.value:g} of {whose} by more than the noise"
        f" ({margin:.2g})",
    )


def _values(name: str, runs: Sequence[Experiment]) -> list[float]:
    return [run.metrics[name.lower()] for run in runs if name.lower() in run.metrics]
