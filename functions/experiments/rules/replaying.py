"""Replays recorded runs under a keep rule: its decisions, and the probability of each keep."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from functions.experiments.rules.keeping import SURE_SIGMAS, KeepRule, SeedScores, is_confirmed
from functions.trust.rules.noise import Mean, cautious, false_share, p_better, pooled
from state.facts import Noise
from state.records import Direction, score

SURE = 0.95
"""A keep is within noise if its probability of being better is lower."""
MANY = 10**9
"""Degrees of freedom of a known sigma."""
USUAL = Noise(0.0006, MANY)
"""Default noise of val_bpb: public logs show 0.0003 to 0.0012."""

ReplayVerdict = Literal["keep", "retest", "confirmed", "demoted", "discard"]


@dataclass(frozen=True)
class RecordedRun:
    name: str
    text: str
    value: float
    kept: bool
    code: Hashable | None = None
    """Runs of equal code are repeats; None: no repeats."""
    p_better: float | None = None
    """Recorded probability, from the noise that was known then; None: it is computed."""


@dataclass(frozen=True)
class Judged:
    """A run with the best of its time in the record."""

    run: RecordedRun
    best: float | None
    margin: float | None
    """Gain over that best: positive is better; None for the first run."""
    p_better: float | None
    verdict: ReplayVerdict

    @property
    def differs(self) -> bool:
        """Whether the rule decides otherwise than the record."""
        return self.verdict == "retest" or (self.verdict in ("keep", "confirmed")) != self.run.kept

    @property
    def within_noise(self) -> bool:
        return self.run.kept and self.p_better is not None and self.p_better < SURE


@dataclass(frozen=True)
class Replay:
    """All judged runs in their order, with totals."""

    judged: list[Judged]

    @property
    def keeps(self) -> list[Judged]:
        """The keeps of the record after the first."""
        return [j for j in self.judged if j.run.kept and j.margin is not None]

    @property
    def claimed(self) -> float:
        """Sum of the keeps' gains, positive is better."""
        return math.fsum(j.margin or 0.0 for j in self.keeps)

    @property
    def false_share(self) -> float | None:
        """Estimated share of keeps that are no improvement; None without keeps.

        It is usually too low, because winners are lucky: `bench/keeps.py` shows by how much.
        """
        return false_share(j.p_better for j in self.keeps)

    def of(self, *verdicts: ReplayVerdict) -> list[Judged]:
        """The keeps of the record with one of these verdicts."""
        return [j for j in self.keeps if j.verdict in verdicts]


def by_running_best(runs: Iterable[RecordedRun], direction: Direction) -> list[RecordedRun]:
    """The runs of a record without verdicts, oldest first: new code that beat all before it counts as kept."""
    judged: list[RecordedRun] = []
    seen = set[Hashable]()
    best = math.inf
    for run in runs:
        mine = score(run.value, direction)
        kept = mine < best and (run.code is None or run.code not in seen)
        judged.append(replace(run, kept=kept))
        seen.add(run.code)
        best = mine if kept else best
    return judged


def noise_of(runs: Iterable[RecordedRun]) -> Noise | None:
    """Noise from repeats of the same code; None without repeats."""
    return pooled(_by_code(runs).values())


def replaying(
    runs: Sequence[RecordedRun], rule: KeepRule, noise: Noise, direction: Direction
) -> Iterator[Judged]:
    """Judge one run after the other by a rule, oldest first.

    Each run is compared with the best that the record had then, even if the rule would not have kept that best. A
    repeat that was not kept is evidence for its code and is not judged.
    """
    repeats = _by_code(runs)
    seen = set[Hashable]()
    best: RecordedRun | None = None
    for run in runs:
        if run.code in seen and not run.kept:
            continue
        if run.code is not None:
            seen.add(run.code)
        yield _judged(run, best, repeats, rule, noise, direction)
        if run.kept:
            best = run


def _judged(
    run: RecordedRun,
    best: RecordedRun | None,
    repeats: dict[Hashable, list[float]],
    rule: KeepRule,
    noise: Noise,
    direction: Direction,
) -> Judged:
    mine = _runs(run, repeats)
    candidate = _trial(run.name, mine, direction)
    if best is None:
        return Judged(run, None, None, None, _verdict(rule, candidate, None, noise))
    theirs = _runs(best, repeats)
    incumbent = _trial(best.name, theirs, direction)
    margin = incumbent.first - candidate.first
    sure = run.p_better
    if sure is None:
        sure = p_better(_mean(mine), _mean(theirs), noise, direction)
    return Judged(run, best.value, margin, sure, _verdict(rule, candidate, incumbent, noise))


def _verdict(
    rule: KeepRule, candidate: SeedScores, incumbent: SeedScores | None, noise: Noise
) -> ReplayVerdict:
    decision = rule(candidate, incumbent, cautious(noise, SURE_SIGMAS), None)
    if decision != "provisional":
        return decision
    if incumbent is None or not (candidate.fresh and incumbent.fresh):
        return "retest"
    return "confirmed" if is_confirmed(candidate, incumbent, noise.sigma) else "demoted"


def _runs(run: RecordedRun, repeats: dict[Hashable, list[float]]) -> list[float]:
    """A run's value first, then those of its repeats."""
    if run.code is None:
        return [run.value]
    others = list(repeats[run.code])
    others.remove(run.value)
    return [run.value, *others]


def _trial(name: str, values: Sequence[float], direction: Direction) -> SeedScores:
    first, *fresh = (score(value, direction) for value in values)
    return SeedScores(name, first, tuple(fresh))


def _mean(values: Sequence[float]) -> Mean:
    return Mean(math.fsum(values) / len(values), len(values))


def _by_code(runs: Iterable[RecordedRun]) -> dict[Hashable, list[float]]:
    groups: dict[Hashable, list[float]] = {}
    for run in runs:
        if run.code is not None:
            groups.setdefault(run.code, []).append(run.value)
    return groups
