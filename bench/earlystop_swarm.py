"""Measures how much GPU time early stopping saves in whole swarms, and whether they still find as good a config.

    .venv/bin/python -P -m bench.earlystop_swarm

A night is 1,000 runs of 50 simulated workers (`bench/_swarm_night.py`). It has hypotheses, reference runs, retests
and a search that learns. Runs report at each bucket, and the rules of the server decide what they are told. The same
night without early stopping has the same truth, workers and seed.

Each run follows the curve of a real run (`bench/curves/`), one that ended at the same place among its pool. Runs of
one config have curves of one shape. In one regime curves settle early (`lcbench`), in the other they cross until the
end, as real GPT runs do (`gpt`).

Saved: share of the GPU time that the complete runs would have taken. Best: true regret of the tag's best config, in
standard deviations of a run. Differences are with minus without early stopping, night by night. One is taken after as
many runs. The other is taken after 80 % of the GPU time (88 % for `gpt`), since early stopping has to save the rest.
Brackets hold 95 % bootstrap intervals over nights.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from random import Random
from statistics import fmean

import click
import numpy as np
from rich.table import Table

from bench._planted import DIMENSIONS, SIGMA, Truth
from bench._report import Bench, mean_of
from bench._swarm_night import POLICY, RUN_S, Night
from bench.earlystop import POINTS, StoppingTag, pool
from functions.experiments.rules.opening import swarm_policy
from functions.swarm.rules.shapes import Shape, drawn_config
from state.policy import BUCKETS, Policy, StoppingRule
from state.records import Experiment, SwarmWorker

NIGHTS = 20
RESULTS = 1000
WORKERS = 50
REGIMES = {"lcbench": 0.20, "gpt": 0.12}
"""Least share of the GPU time that the default rule must save, by pool of curves."""
WORSE = 0.5
"""Most sigmas by which the best config may be worse than without early stopping, at the upper end of the interval."""
DEFAULT: StoppingRule = swarm_policy(Policy()).stopping.rule
DRAWN = 500
"""Random configs with which the end of a run is ranked."""
ALIKE = 0.03
"""A config's curve has a rank in the pool within this share of the rank of its end."""


class Curves:
    """Curves of a pool for the runs of one truth."""

    def __init__(self, name: str, truth: Truth, seed: int) -> None:
        curves, rng = pool(name), Random(f"configs {seed}")
        self._curves = curves[np.argsort(curves[:, -1])]
        drawn = (truth.value(drawn_config(DIMENSIONS, Shape("investigate"), rng)) for _ in range(DRAWN))
        self._ends = np.sort([value + rng.gauss(0.0, SIGMA) for value in drawn])
        self._scale = _spread(self._ends) / _spread(self._curves[:, -1])
        self._seed = seed

    def reports(self, fingerprint: str, end: float, rng: Random) -> dict[float, float]:
        """Reports of a run at each bucket, by its config and the value that it ends with."""
        place = float(np.searchsorted(self._ends, end)) / DRAWN
        near = abs(place + Random(f"{self._seed} {fingerprint}").uniform(-ALIKE, ALIKE))
        curve = self._curves[min(int(near * len(self._curves)), len(self._curves) - 1)]
        above = {bucket: float(curve[round(bucket * POINTS) - 1] - curve[-1]) for bucket in BUCKETS}
        return {b: end + self._scale * up + rng.gauss(0.0, SIGMA) * (1 - b) for b, up in above.items()}


def _spread(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """Distance of the quartiles."""
    low, high = np.quantile(values, (0.25, 0.75))
    return float(high - low)


class StoppingNight(Night):
    """A night whose runs report on their way, and are ranked by it."""

    refilled_every = 40

    def __init__(self, seed: int, curves: str, policy: Policy) -> None:
        self.used_s = self.whole_s = 0.0
        self.references = 0
        """Runs of reference configs that have begun."""
        self._path = Random(f"reports {seed}")
        self._curves = Curves(curves, Truth.drawn(Random(f"truth {seed}")), seed)
        self._ranks = StoppingTag(f"{seed}", policy.stopping)
        self._values: dict[str, float] = {}
        self._reports: dict[str, dict[float, float]] = {}
        self._ticks: list[tuple[float, str, float]] = []
        super().__init__(seed, believes=True, policy=policy, workers=WORKERS)

    def go_on(self, results: int) -> None:
        """Until so many runs have ended in all, whichever way."""
        while self.results < results:
            if self._ticks and self._ticks[0][0] <= self._ends[0][0]:
                self._now, name, bucket = heapq.heappop(self._ticks)
                if name in self._running:
                    self._tick(self._running[name], bucket)
            else:
                super().go_on(self.results + 1)

    def _start(self, e: Experiment, worker: SwarmWorker) -> None:
        super()._start(e, worker)
        assert e.fingerprint is not None
        name, value = e.experiment_id, self.measured(e.config_delta or {})
        lasts_s = next(at for at, ending in self._ends if ending == name) - self._now
        self._values[name] = value
        self._reports[name] = self._curves.reports(e.fingerprint, value, self._path)
        self.references += e.is_reference
        self.used_s += lasts_s
        self.whole_s += lasts_s
        for bucket in BUCKETS if e.retest_of is None else ():
            if bucket < 1:
                heapq.heappush(self._ticks, (self._now + bucket * lasts_s, name, bucket))

    def _ended_with(self, e: Experiment) -> float:
        return self._values[e.experiment_id]

    def _end(self, e: Experiment) -> None:
        assert e.baseline_bpb is not None
        if e.retest_of is None:
            self._ranks.end(e.experiment_id, self._values[e.experiment_id] - e.baseline_bpb)
        super()._end(e)

    def _tick(self, e: Experiment, bucket: float) -> None:
        """Rank a report and stop the run if the rule says so, as run::tick does."""
        assert e.baseline_bpb is not None
        name, value = e.experiment_id, self._reports[e.experiment_id][bucket]
        ranked = self._ranks.told(
            name, bucket, value - e.baseline_bpb, strategy=e.population_strategy, may_stop=not e.is_compared
        )
        if ranked is None:
            return
        ranks = {**(e.ranked or {}), repr(bucket): (ranked.rank, ranked.answer.chance)}
        e = e.model_copy(update={"ranked": ranks, "last_metric": value, "last_progress": bucket})
        self._running[name] = e
        if ranked.answer.told == "stop":
            ends_at = next(at for at, ending in self._ends if ending == name)
            self.used_s -= ends_at - self._now
            self._stop(e)


# -- with and without early stopping


@dataclass(frozen=True)
class NightResult:
    """The figures of one night."""

    saved: float
    stopped: int
    regret: float
    """Of the tag's best, in sigmas."""
    later: float
    """The same, once the allowed GPU time is used."""
    references: float
    """Share of the runs."""


@dataclass(frozen=True)
class NightPlan:
    """A night to simulate."""

    seed: int
    curves: str
    rule: StoppingRule
    results: int = RESULTS


def lived(wanted: NightPlan) -> NightResult:
    night = StoppingNight(wanted.seed, wanted.curves, POLICY.changed({"stopping.rule": wanted.rule}))
    night.go_on(wanted.results)
    saved, stopped, regret = 1 - night.used_s / night.whole_s, night.stopped, night.regret(night.best_config)
    while wanted.rule != "none" and night.used_s < (1 - REGIMES[wanted.curves]) * wanted.results * RUN_S:
        night.go_on(night.results + 1)
    return NightResult(
        saved=saved,
        stopped=stopped,
        regret=regret,
        later=night.regret(night.best_config),
        references=night.references / len(night.ran),
    )


def compare(
    nights: int, results: int, rules: Sequence[StoppingRule], pool_of: ProcessPoolExecutor, bench: Bench
) -> None:
    """Print what each rule saves and costs. The default rule has targets."""
    seeds = range(1, nights + 1)
    # these runs are never stopped, so that their curves do not matter
    whole = [NightPlan(seed, next(iter(REGIMES)), "none", results) for seed in seeds]
    cells: list[tuple[StoppingRule, str]] = [(rule, curves) for rule in rules for curves in REGIMES]
    wanted = [NightPlan(seed, curves, rule, results) for rule, curves in cells for seed in seeds]
    found = iter(list(pool_of.map(lived, [*whole, *wanted])))
    without = [next(found) for _ in seeds]
    columns = ("rule", "curves", "saved", "stopped", "best", "without", "as many runs", "asked GPU time")
    table = Table(*columns, "reference runs")
    for rule, curves in cells:
        its = [next(found) for _ in seeds]
        saved = mean_of([one.saved for one in its])
        worse, later = (
            mean_of([of(one) - other.regret for one, other in zip(its, without, strict=True)])
            for of in (attrgetter("regret"), attrgetter("later"))
        )
        table.add_row(
            rule,
            curves,
            f"{saved:.3f}",
            f"{fmean(one.stopped for one in its):.0f} of {results}",
            f"{fmean(one.regret for one in its):.2f}",
            f"{fmean(one.regret for one in without):.2f}",
            f"{worse:.2f}",
            f"{later:.2f}",
            f"{100 * fmean(one.references for one in its):.1f} %",
        )
        if rule == DEFAULT and saved.low < REGIMES[curves]:
            bench.missed.append(f"{curves}: saves {saved:.3f}, at least {REGIMES[curves]} at the lower end")
        if rule == DEFAULT and later.high > WORSE:
            bench.missed.append(f"{curves}: the best is {later:.2f} worse, at most {WORSE} at the upper end")
    bench.console.print(table)


@click.command(help=__doc__)
@click.option("--nights", default=NIGHTS, show_default=True, type=click.IntRange(1))
@click.option("--results", default=RESULTS, show_default=True, type=click.IntRange(1))
@click.option("--rule", "rules", multiple=True, default=[DEFAULT], show_default=True, help="May be repeated.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1), help="Nights at once.")
def main(nights: int, results: int, rules: Sequence[StoppingRule], jobs: int) -> None:
    """Live the nights; exits with 1 if the default rule misses a target."""
    bench = Bench(width=150)
    with ProcessPoolExecutor(jobs) as executor:
        compare(nights, results, rules, executor, bench)
    bench.end(f"{nights} nights")


if __name__ == "__main__":
    main()
