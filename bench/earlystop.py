"""Measures on curves of real runs how much early stopping saves, and how many of the best runs it ends.

    .venv/bin/python -P -m bench.earlystop

In a replay, 200 runs of a pool come in random order to 8 workers, and report at each tenth of their way. The server's
own rules (`functions/runs/rules/`) decide which to stop. They use what the server keeps of a tag: ranks at each
bucket, ends, trends and counts of stopped runs. A stopped run frees its worker at once.

The curves are in `bench/curves/`, whose README names their sources. On the easy pools the ranking of the runs is
nearly settled after a fifth of their way. On the real one it changes until the end. All pools have the same settings.
"""

from __future__ import annotations

import heapq
import random
import statistics
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from bench._report import Bench
from functions.runs.rules.stopping import (
    STOPPERS,
    Checkpoint,
    PeerRank,
    TickVerdict,
    drawn,
    judge,
    looks_at,
    place_among,
    score_of,
    together,
    told_by,
)
from functions.runs.rules.ticks import bucket_of
from state.facts import NO_TREND, Trend
from state.policy import BUCKETS, Stopping, StoppingRule

Curves = NDArray[np.float64]
"""Runs x 20 points of their way, of a metric that is minimised."""

CURVES = Path(__file__).parent / "curves"
POINTS = 20
REPORTED_EVERY = 2
WORKERS = 8
RUNS = 200
TOP = 0.05


@dataclass(frozen=True)
class Bound:
    """Bounds of `adaptive` on one pool."""

    used: float
    """Largest share of the GPU time of all complete runs that may be used."""
    best: float
    """Least share of replays in which the best run is not stopped."""
    top: float
    """Least share of the best 5 % that is not stopped."""


EASY, REAL = Bound(0.45, 0.0, 0.95), Bound(0.78, 0.99, 0.93)
POOLS: Mapping[str, Bound | None] = {"lcbench": EASY, "gpt": REAL, "digits": None, "lcbench_other": None}
"""Pools with their bounds. None: shown for comparison."""


@dataclass(frozen=True)
class ReplayOutcome:
    """The result of one replay, or the mean of several."""

    used: float
    best: float
    top: float


@dataclass(frozen=True)
class RankedReport:
    """A run at a bucket: its rank, 0 to 100, and the answer to its report."""

    rank: float
    answer: TickVerdict


@dataclass
class StoppingTag:
    """The server's record of a tag's runs on one class of GPU, in memory."""

    name: str
    settings: Stopping
    results: int = 0
    ranks: dict[float, list[float]] = field(default_factory=lambda: {bucket: [] for bucket in BUCKETS})
    stopped: dict[float, int] = field(default_factory=lambda: dict.fromkeys(BUCKETS, 0))
    ends: list[float] = field(default_factory=list)
    trends: dict[str, Trend] = field(default_factory=lambda: defaultdict(lambda: NO_TREND))
    places: dict[int | str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    spared: set[int | str] = field(default_factory=set)

    def is_stopped(self, run: int, progress: float, value: float) -> bool:
        """Rank a run by its report, and say whether it is to stop."""
        bucket = bucket_of(progress)
        told = None if bucket is None else self.told(run, bucket, value)
        return told is not None and told.answer.told == "stop"

    def told(
        self,
        run: int | str,
        bucket: float,
        value: float,
        *,
        strategy: str | None = None,
        may_stop: bool = True,
    ) -> RankedReport | None:
        """Rank a run by its report at a bucket. None: the rule ignores this bucket."""
        if not looks_at(self.settings.rule, bucket):
            return None
        stands = PeerRank(
            *_beside(self.ranks[bucket], value),
            stopped=sum(n for at, n in self.stopped.items() if at < bucket),
            trend=self.trends[repr(bucket)],
            was_spared=run in self.spared,
        )
        insort(self.ranks[bucket], value)
        if stands.peers >= self.settings.min_peers:
            self.places[run][repr(bucket)] = score_of(stands.place)
        draw = drawn(f"{self.name}-{run}", bucket)
        answer = judge(Checkpoint(bucket, stands, self.results, strategy, may_stop), draw, self.settings)
        if answer.told == "stop":
            self.stopped[bucket] += 1
            self.results += 1
        elif answer.chance > 0:
            self.spared.add(run)
        return RankedReport(stands.rank, answer)

    def end(self, run: int | str, value: float) -> None:
        end = score_of(place_among(*_beside(self.ends, value)))
        insort(self.ends, value)
        self.results += 1
        for bucket, told in told_by(self.places.pop(run, {}), end).items():
            self.trends[bucket] = together(self.trends[bucket], told)


def _beside(values: Sequence[float], value: float) -> tuple[int, int, int]:
    """Numbers of sorted values that are better (lower), equal and worse."""
    lower, upto = bisect_left(values, value), bisect_right(values, value)
    return lower, upto - lower, len(values) - upto


def replayed(curves: Curves, tag: StoppingTag, workers: int, seed: int) -> ReplayOutcome:
    """Replay the runs in random order, each on the first free worker."""
    chance = random.Random(seed)
    waiting = chance.sample(range(len(curves)), len(curves))
    going: list[tuple[float, int, int]] = []
    used, whole = 0, set[int]()

    def go_on(now: float, run: int, point: int) -> None:
        heapq.heappush(going, (now + chance.uniform(0.95, 1.05), run, point))

    for _ in range(min(workers, len(waiting))):
        go_on(0.0, waiting.pop(), 1)
    while going:
        now, run, point = heapq.heappop(going)
        value, is_over = float(curves[run, point - 1]), point == POINTS
        if is_over:
            tag.end(run, value)
            whole.add(run)
        elif point % REPORTED_EVERY == 0:
            is_over = tag.is_stopped(run, point / POINTS, value)
        if not is_over:
            go_on(now, run, point + 1)
            continue
        used += point
        if waiting:
            go_on(now, waiting.pop(), 1)
    order = [int(run) for run in np.argsort(curves[:, -1])]
    top = set(order[: max(1, round(TOP * len(order)))])
    return ReplayOutcome(used / POINTS / len(curves), order[0] in whole, len(top & whole) / len(top))


def measured(
    curves: Curves, rule: StoppingRule, seeds: Sequence[int], *, runs: int = RUNS, workers: int = WORKERS
) -> ReplayOutcome:
    """The mean over replays, each with `runs` runs of a pool."""
    settings = Stopping(rule=rule)
    found: list[ReplayOutcome] = []
    for seed in seeds:
        some = random.Random(1000 + seed).sample(range(len(curves)), min(runs, len(curves)))
        found.append(replayed(curves[some], StoppingTag(f"{seed}", settings), workers, seed))
    means = (statistics.fmean(getattr(o, part) for o in found) for part in ("used", "best", "top"))
    return ReplayOutcome(*means)


def pool(name: str) -> Curves:
    with np.load(CURVES / f"{name}.npz") as stored:
        found: Curves = stored["curves"].astype(np.float64)
    return found


def rank_correlation(curves: Curves, point: int) -> float:
    """Spearman's correlation of the values at this point (1 to 20) with the values at the end, over all runs."""
    early, late = (np.argsort(np.argsort(curves[:, at])) for at in (point - 1, POINTS - 1))
    return float(np.corrcoef(early, late)[0, 1])


def missed(name: str, found: ReplayOutcome) -> list[str]:
    """The bounds of `adaptive` that this pool misses."""
    bound = POOLS[name]
    if bound is None:
        return []
    asked = {
        f"uses {found.used:.3f} of the GPU time, at most {bound.used}": found.used <= bound.used,
        f"the best lives in {found.best:.3f} of the replays, at least {bound.best}": found.best >= bound.best,
        f"of the top 5 % {found.top:.3f} live, at least {bound.top}": found.top >= bound.top,
    }
    return [f"{name}: {what}" for what, holds in asked.items() if not holds]


@click.command()
@click.option("--replays", default=200, show_default=True, help="Replays for each pool and rule.")
@click.option("--seed", default=0, show_default=True, help="Where their chance begins.")
@click.option("--runs", default=RUNS, show_default=True, help="Runs in a replay.")
@click.option("--workers", default=WORKERS, show_default=True, help="Workers at once.")
def main(replays: int, seed: int, runs: int, workers: int) -> None:
    """Replay real curves under each rule; exits with 1 if `adaptive` misses a bound."""
    bench = Bench(width=160)
    table = Table("rule", *(f"{name}{'' if bound else ', not asked'}" for name, bound in POOLS.items()))
    curves = {name: pool(name) for name in POOLS}
    early = (f"{rank_correlation(c, 2):.2f} / {rank_correlation(c, 4):.2f}" for c in curves.values())
    table.add_row("rank correlation with the end at 0.1 / 0.2", *early, end_section=True)
    for rule in STOPPERS:
        row = {
            name: measured(c, rule, range(seed, seed + replays), runs=runs, workers=workers)
            for name, c in curves.items()
        }
        table.add_row(rule, *(f"{o.used:.2f}  {o.best:.2f}  {o.top:.2f}" for o in row.values()))
        if rule == "adaptive":
            bench.missed += [what for found in starmap(missed, row.items()) for what in found]
    bench.console.print(table)
    bench.console.print("GPU time used  the best lives  share of the best 5 % that lives")
    bench.end(f"{replays} replays of {runs} runs for each cell")


if __name__ == "__main__":
    main()
