"""Measures how far a swarm's beliefs can be trusted, on simulated runs of claims that are true or not.

    .venv/bin/python -P -m bench.beliefs

The noise of a run is normal with a standard deviation of 1 sigma. A claim that is not true has no effect. A pair is a
run and a fresh run of the reference config, by the same worker unless stated otherwise. Every figure comes from the
rules of `functions/beliefs/rules`, applied after every run. For thousands of claims a table replaces them: the result
of `after` at each number of wins and losses. Rates without a bound are for comparison.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any, Literal

import click
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from bench._report import Bench
from functions.beliefs.rules.evidence import ARCHIVED, outcome_of
from functions.beliefs.rules.learning import BeliefState, after, after_run
from functions.beliefs.rules.posterior import posterior_of
from functions.beliefs.rules.terms import COMPARED, BeliefTerms, FinishedRun, Survivors, band_of, strategy_of
from functions.beliefs.rules.whole_range import (
    ENOUGH_REPEATS,
    Block,
    e_values_of,
    is_irrelevant,
    lacking,
    with_run,
)
from functions.runs.rules.stopping import Checkpoint, judge, standing
from functions.swarm.rules.dimensions import DeclaredDimension, checked
from functions.swarm.rules.rooms import END
from functions.swarm.rules.shapes import SwarmStrategy
from functions.trust.rules.noise import usual_distance
from state.facts import Noise
from state.policy import Stopping
from state.records import Evidence, Hypothesis

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

KEPT = 64
"""Waiting runs, and unused reference runs, that are kept for a claim."""
MOST = 200
"""Most outcomes of a claim."""
SIGMA = 1.0
_LR = {"name": "LR", "dtype": "float_log", "min": 1e-4, "max": 1e-1}
LR = checked(DeclaredDimension.model_validate(_LR))
TERMS = BeliefTerms(sigma=SIGMA, repeats=ENOUGH_REPEATS, dimensions=(LR,))
BLIND = BeliefTerms()
"""Without a known sigma no claim is irrelevant, so all verdicts come from e-values."""
REPEATS_BEFORE = 5
"""Degrees of freedom of the noise before the first pair."""
OWN, OTHER = {"LR": 0.00316}, {"LR": 0.01}
"""The reference config, and a config of the claim."""
SUPPORTED, REFUTED = 1, 2
CODES = {"active": 0, None: 0, "supported": SUPPORTED, "refuted": REFUTED}


# -- the rule as a table of wins and losses


@dataclass(frozen=True)
class Ruled:
    """Status and verdict by wins and losses, as codes."""

    status: Counts
    verdict: Counts

    @classmethod
    @cache
    def table(cls) -> Ruled:
        status, verdict = (np.zeros((MOST + 1, MOST + 1), dtype=np.int64) for _ in range(2))
        for wins in range(MOST + 1):
            for losses in range(MOST + 1 - wins):
                if wins + losses:
                    found = _said(wins, losses)
                    status[wins, losses] = CODES[found.status]
                    verdict[wins, losses] = CODES[found.settled]
        return cls(status, verdict)


def claim(**changes: Any) -> Hypothesis:
    return Hypothesis(
        **{
            "hypothesis_id": "hyp_1",
            "tag": "bench",
            "statement": "a higher LR is better",
            "dimensions": ["LR"],
            "config_constraint": OTHER,
            "created_at": 0.0,
            "reference_config": OWN,
            **changes,
        }
    )


def _said(wins: int, losses: int) -> Hypothesis:
    """A claim after these outcomes; the last one is a win if there is any."""
    won = wins > 0
    before, lost = wins - won, losses - (not won)
    known = claim(alpha=2.0 + before, beta=2.0 + lost, n_experiments=before + lost, wins=before, losses=lost)
    return after(known, Evidence(experiment_id="x", outcome=float(won), against="reference"), now=0.0)


@dataclass(frozen=True)
class Lives:
    """Contrasts of many claims in order, one claim a row, with the wins and losses so far."""

    contrasts: Floats
    wins: Counts
    losses: Counts

    @classmethod
    def of(cls, contrasts: Floats) -> Lives:
        wins = np.cumsum(contrasts < 0, axis=1, dtype=np.int64)
        return cls(contrasts, wins, np.arange(1, contrasts.shape[1] + 1) - wins)

    def first(self, codes: Counts, code: int) -> Counts:
        """Number of outcomes until each claim first has this code; more than MOST: never."""
        has = codes[self.wins, self.losses] == code
        return np.where(has.any(axis=1), has.argmax(axis=1) + 1, MOST + 1)


def normal_pairs(chance: np.random.Generator, claims: int, effect: float = 0.0, slope: float = 0.0) -> Floats:
    """Contrasts of claims with this effect; `slope` is the largest deviation of single values from it."""
    shape = (claims, MOST)
    values = effect + slope * chance.uniform(-1, 1, shape)
    return SIGMA * (values + chance.normal(size=shape) - chance.normal(size=shape))


# -- one swarm, run by run


@dataclass
class ClaimSwarm:
    """Workers that test one claim, and the belief in it after each of their runs."""

    hypothesis: Hypothesis
    terms: BeliefTerms

    def __post_init__(self) -> None:
        self.known = BeliefState(self.hypothesis)
        self.runs = 0

    def end(self, worker_id: str, judged: float, strategy: SwarmStrategy, *, is_reference: bool) -> None:
        self.runs += 1
        config = OWN if is_reference else OTHER
        run = FinishedRun(f"{self.runs}", worker_id, config, strategy, "hyp_1", "value", judged)
        unused = [*self.known.unused, run] if is_reference and strategy in COMPARED else self.known.unused
        known = replace(self.known, unused=unused)
        after_it = after_run(run, known, self.terms, now=0.0)
        waiting, unused = after_it.waiting[-KEPT:], after_it.unused[-KEPT:]
        self.known = replace(after_it, waiting=waiting, unused=unused)
        self.hypothesis = self.known.hypothesis

    def wants_reference(self, worker_id: str) -> bool:
        """Whether its next run should be a reference run, because one of its runs waits for one."""
        waiting, unused = (
            sum(run.worker_id == worker_id for run in runs)
            for runs in (self.known.waiting, self.known.unused)
        )
        return waiting > unused


# -- the report


class FigureTable(Bench):
    """A bench with one table of figures and their bounds."""

    def __init__(self) -> None:
        super().__init__(width=None)
        self.table = Table("what", "found", "asked")

    def section(self, name: str) -> None:
        self.table.add_section()
        self.table.add_row(f"[bold]{name}[/]")

    def rate(self, what: str, hits: NDArray[np.bool_], most: float | None = None) -> None:
        """A share in percent, with its standard error."""
        share = float(hits.mean())
        error = math.sqrt(share * (1 - share) / len(hits))
        self.figure(
            what, 100 * share, "%", None, None if most is None else 100 * most, f" ± {100 * error:.2g}"
        )

    def figure(
        self,
        what: str,
        value: float,
        unit: str = "",
        least: float | None = None,
        most: float | None = None,
        beside: str = "",
    ) -> None:
        asked = [f"at least {least:.3g}"] if least is not None else []
        asked += [f"at most {most:.3g}"] if most is not None else []
        is_hit = (least is None or value >= least) and (most is None or value <= most)
        found = f"{value:.3g}{beside} {unit}".strip()
        self.row(self.table, what, found, ", ".join(asked), is_hit=is_hit)


def nulls(report: FigureTable, chance: np.random.Generator, claims: int) -> None:
    """Claims that are not true."""
    ruled, lives = Ruled.table(), Lives.of(normal_pairs(chance, claims))
    _check_table(lives)
    report.section(f"{claims:,} claims that are not true, {MOST} pairs each")
    refuted, supported = (lives.first(ruled.verdict, code) for code in (REFUTED, SUPPORTED))
    report.rate("archived as refuted", refuted <= MOST, 0.035)
    report.rate("supported with an e-value of 20", supported <= MOST, 0.035)
    report.rate("either", np.minimum(refuted, supported) <= MOST, 0.06)
    status = np.minimum(lives.first(ruled.status, REFUTED), lives.first(ruled.status, SUPPORTED))
    report.rate("ever supported or refuted without an e-value", status <= MOST)
    for shared in (2, 40):
        own = chance.normal(size=(claims // 5, MOST))
        alike = Lives.of(own - chance.normal(size=(claims // 5, shared)).mean(axis=1, keepdims=True))
        decided = np.minimum(*(alike.first(ruled.verdict, code) for code in (REFUTED, SUPPORTED)))
        report.rate(f"either, all beside one mean of {shared} reference runs", decided <= MOST)


def _check_table(lives: Lives) -> None:
    """Check the table against the whole rule, run by run, for some claims."""
    ruled = Ruled.table()
    for row in range(20):
        swarm = ClaimSwarm(claim(), BLIND)
        for k, contrast in enumerate(lives.contrasts[row].tolist()):
            swarm.end("w", 0.0, "investigate", is_reference=True)
            swarm.end("w", contrast, "investigate", is_reference=False)
            at = lives.wins[row, k], lives.losses[row, k]
            known = swarm.hypothesis
            if known.settled == "refuted":
                assert ruled.verdict[at] == REFUTED
                break
            assert ruled.status[at] == CODES[known.status]


def planted(report: FigureTable, chance: np.random.Generator, claims: int) -> None:
    """Claims that are true."""
    ruled = Ruled.table()
    report.section(
        "claims that are true: outcomes until they are supported, and until an e-value bears it out"
    )
    for theta in (0.65, 0.75, 0.9):
        contrasts = np.where(chance.random((claims, MOST)) < theta, -1.0, 1.0)
        lives = Lives.of(contrasts)
        first = lives.first(ruled.status, SUPPORTED)
        report.figure(
            f"median until status supported, theta {theta}",
            float(np.median(first)),
            most=30 if theta == 0.75 else None,
            beside=f" (90 % within {np.quantile(first, 0.9):.0f})",
        )
        settled = lives.first(ruled.verdict, SUPPORTED)
        report.figure(
            f"median until settled, theta {theta}",
            float(np.median(settled)),
            beside=f" ({_within(settled):.3g} % within {MOST})",
        )


def influences(report: FigureTable, chance: np.random.Generator, claims: int) -> None:
    """Claims of influence, with noise estimated from some repeats and one more with each pair."""
    ruled = Ruled.table()
    report.section(f"claims of influence; noise known from {REPEATS_BEFORE} repeats, one more with each pair")
    for effect, slope in ((0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (0.0, 3.0), (4.0, 0.0)):
        contrasts = normal_pairs(chance, claims if effect == slope else claims // 5, effect, slope)
        far = np.abs(contrasts) > _distances(chance, len(contrasts))
        lives = Lives.of(np.where(far, -1.0, 1.0))
        settled = lives.first(ruled.verdict, SUPPORTED)
        what = f"{effect:g} sigma" if not slope else f"from -{slope:g} to {slope:g} sigma"
        if effect == slope:
            report.rate("without an effect: settled as supported", settled <= MOST, 0.035)
            continue
        report.figure(
            f"median until settled as supported, {what}",
            float(np.median(settled)),
            beside=f" ({_within(settled):.3g} % within {MOST})",
        )


def _distances(chance: np.random.Generator, claims: int) -> Floats:
    """`usual_distance` before each pair of each claim."""
    df = REPEATS_BEFORE + np.arange(MOST)
    first = chance.chisquare(REPEATS_BEFORE, (claims, 1))
    later = np.cumsum(chance.chisquare(1, (claims, MOST - 1)), axis=1)
    squares = np.hstack([first, first + later])
    far = np.array([usual_distance(Noise(SIGMA, int(n))) for n in df])
    return far * np.sqrt(squares / df)


def _within(first: Counts) -> float:
    """Percentage of claims that reached the state within MOST outcomes."""
    return 100 * float((first <= MOST).mean())


def coverage(report: FigureTable, chance: np.random.Generator, claims: int) -> None:
    """Coverage of the credible interval."""
    report.section(f"90 % interval, {claims:,} claims with theta drawn from Beta(2, 2)")
    for n in (5, 30, MOST):
        thetas = chance.beta(2, 2, claims)
        wins = chance.binomial(n, thetas)
        ends = np.array([posterior_of(2.0 + k, 2.0 + n - k).credible_interval_90 for k in range(n + 1)])[wins]
        inside = (ends[:, 0] <= thetas) & (thetas <= ends[:, 1])
        report.figure(f"holds theta after {n} outcomes", 100 * float(inside.mean()), "%", 89, 91)


SHAPES: Mapping[str, Callable[[Floats], Floats]] = {
    "none": np.zeros_like,
    "1 sigma everywhere but at the reference config": np.ones_like,
    "1 sigma in the upper fifth alone": lambda place: (place > 0.8).astype(np.float64),
    "a straight line of 2 sigma": lambda place: 2 * place - 1,
    "a bowl of 2 sigma around the reference config": lambda place: 8 * (place - 0.5) ** 2,
    "a bowl of 2 sigma around another value": lambda place: 2 * ((place - 0.3) / 0.7) ** 2 - 0.16,
    "a cliff of 2 sigma in the upper sixth": lambda place: 2 * (place > 5 / 6).astype(np.float64),
}
"""Effects of a dimension in sigmas by the place in its range; the reference config is in the middle, at 0."""
SECTIONS = ((0.0, END), (END, 1 - END), (1 - END, 1.0))
"""Sections of the range; the claim's runs go where evidence lacks."""


def irrelevance(report: FigureTable, chance: np.random.Generator, claims: int) -> None:
    """Irrelevance of dimensions with and without an effect."""
    report.section(
        f"irrelevance of {claims // 40:,} dimensions, up to {MOST} runs and as many reference runs"
    )
    for name, effect in SHAPES.items():
        found = np.array([irrelevant_after(chance, effect) for _ in range(max(claims // 40, 1))])
        if name == "none":
            beside = f" (90 % within {np.quantile(found, 0.9):.0f}, {_within(found):.3g} % within {MOST})"
            what = "median runs until a dimension without effect is irrelevant"
            report.figure(what, float(np.median(found)), beside=beside)
        else:
            report.rate(f"irrelevant with an effect: {name}", found <= MOST, 0.05)


def irrelevant_after(chance: np.random.Generator, effect: Callable[[Floats], Floats]) -> int:
    """Number of runs, with as many reference runs, until a dimension is irrelevant; more than MOST: never."""
    h, blocks, lacks = claim(config_constraint={}), dict[str, Block](), dict[str, float]()
    draws, noise = Random(int(chance.integers(2**32))), chance.normal(size=(MOST, 2)).tolist()
    for k, (reference, luck) in enumerate(noise):
        weights = [*lacks.values()] if any(lacks.values()) else None
        place = draws.uniform(*draws.choices(SECTIONS, weights)[0])
        judged = float(effect(np.array(place))) + luck
        config = {"LR": float(f"{1e-4 * 1000**place:.3g}")}
        for each, value in ((OWN, reference), (config, judged)):
            run = FinishedRun(f"{k}", "w", each, "investigate", "hyp_1", "value", SIGMA * value)
            blocks = dict(with_run(blocks, run, h, TERMS))
        e_values = e_values_of(blocks, h, TERMS)
        lacks = lacking(e_values)
        if is_irrelevant(e_values, blocks):
            return k + 1
    return MOST + 1


# -- runs that are stopped early

STOPPING = Stopping(rule="stochastic")
RUNS, REPEATS = 2000, 50
NEAR = 0.03
"""Largest error of a win share."""
CORRELATED = {0.2: 0.75, 0.4: 0.85, 0.6: 0.92, 0.8: 0.97}
"""Correlation of a run's value at each bucket with its last value."""


def stopped_runs(report: FigureTable, chance: np.random.Generator, repeats: int) -> None:
    """Bias of the win share while the worst runs are stopped."""
    report.section(f"win share of {RUNS:,} runs with early stopping, mean of {repeats} repeats")
    for share in (0.3, 0.4, 0.5):
        read = np.array([_read(share, chance) for _ in range(repeats)])
        counted, ignored, stopped = read.mean(axis=0)
        beside = f" ({100 * stopped:.3g} % stopped)"
        what = f"true share {share}, stopped runs counted"
        report.figure(what, counted, "", share - NEAR, share + NEAR, beside)
        off = np.abs(read[:, 0] - share)
        report.figure(f"{what}: swarms off by more than {NEAR}", 100 * float((off > NEAR).mean()), "%")
        report.figure(f"true share {share}, stopped runs left out", ignored)


def _read(share: float, chance: np.random.Generator) -> tuple[float, float, float]:
    """The believed win share of one swarm, the share without stopped runs, and the share of stopped runs."""
    last = chance.normal(size=RUNS)
    won = last < np.quantile(last, share)
    pools: dict[float, list[float]] = {bucket: [] for bucket in CORRELATED}
    tallies: defaultdict[tuple[float, int], Survivors] = defaultdict(Survivors)
    known = claim()
    ended = wins = 0
    for k in range(RUNS):
        passed: list[tuple[tuple[float, int], float]] = []
        said: Evidence | None = None
        for bucket, correlation in CORRELATED.items():
            value = correlation * last[k] + math.sqrt(1 - correlation**2) * chance.normal()
            pool = pools[bucket]
            low = bisect_left(pool, value)
            at = standing("minimize", lower=low, equal=bisect_right(pool, value) - low, peers=len(pool))
            answer = judge(Checkpoint(bucket, at, k, "investigate"), chance.random(), STOPPING)
            insort(pool, value)
            place = bucket, band_of(at.rank)
            if answer.told == "stop":
                run = FinishedRun(
                    *(str(k), "w", OTHER, "investigate", "hyp_1", "stopped"), survivors=tallies[place]
                )
                said = outcome_of(run, known, TERMS)
                break
            if answer.chance:
                passed.append((place, answer.chance))
        else:
            ended, wins = ended + 1, wins + int(won[k])
            run = FinishedRun(str(k), "w", OTHER, "investigate", "hyp_1", "value", -1.0 if won[k] else 1.0)
            beside = FinishedRun(f"r{k}", "w", OWN, "investigate", "hyp_1", "value", 0.0)
            said = outcome_of(run, known, TERMS, beside)
        assert said is not None
        assert said.outcome is not None
        for place, might in passed:
            tallies[place] = tallies[place].with_(said.outcome, might)
        known = claim(alpha=known.alpha + said.outcome, beta=known.beta + 1 - said.outcome)
    return (known.alpha - 2) / RUNS, wins / ended, 1 - ended / RUNS


# -- workers whose baseline was measured with luck

LUCKY = 3.0
"""Error of the lucky worker's baseline, in sigmas."""
WORKERS = 10


def lucky_baseline(report: FigureTable, chance: np.random.Generator, claims: int) -> None:
    """Influence of a worker with a wrong baseline that makes half of all runs."""
    report.section(
        f"{WORKERS} workers, the baseline of one is off by {LUCKY:g} sigma, it makes half of the runs; nothing is"
        f" true, {claims:,} claims of {2 * MOST} runs"
    )
    matched, baseline, some = (
        BeliefTerms(workers=WORKERS),
        BeliefTerms("baseline", workers=WORKERS),
        max(claims // 4, 1),
    )
    for what, rows, most in (
        ("references as the lab wants them", _settled(chance, claims, matched, "wanted"), 0.06),
        ("references by others alone", _settled(chance, claims, matched, "by others"), 0.06),
        ("workers come for three runs", _settled(chance, claims, matched, "passing"), 0.06),
        ("beside baselines", _settled(chance, some, baseline, "wanted"), None),
    ):
        report.rate(f"settled, {what}", rows, most)
    settled, supported = _always_wins(chance, some, baseline)
    report.rate("settled beside baselines, it always wins and the others are even", settled, 0.06)
    report.rate("supported beside baselines, at the end", supported)


def _settled(
    chance: np.random.Generator,
    claims: int,
    terms: BeliefTerms,
    references: Literal["wanted", "by others", "passing"],
) -> NDArray[np.bool_]:
    """Which claims were settled. Passing workers make three runs each, half of them reference runs.

    The first worker has the wrong baseline.
    """
    found = []
    for _ in range(claims):
        swarm = ClaimSwarm(claim(), terms)
        luck = np.append(LUCKY * chance.choice([-1, 1]), chance.normal(size=2 * MOST))
        noise, draws = chance.normal(size=2 * MOST), chance.random((2 * MOST, 3))
        for k in range(2 * MOST):
            other = 1 + (k // 3 if references == "passing" else int(draws[k, 1] * (WORKERS - 1)))
            worker = 0 if draws[k, 0] < 0.5 else other
            is_reference = (
                swarm.wants_reference(f"w{worker}") if references == "wanted" else bool(draws[k, 2] < 0.5)
            )
            if references == "by others":
                is_reference = worker != 0 and is_reference
            swarm.end(f"w{worker}", float(noise[k] - luck[worker]), "investigate", is_reference=is_reference)
            if swarm.hypothesis.settled is not None:
                break
        found.append(swarm.hypothesis.settled is not None)
    return np.array(found)


def _always_wins(
    chance: np.random.Generator, claims: int, terms: BeliefTerms
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which claims are settled, and which end as supported, if one worker wins every second run."""
    settled, supported = [], []
    for _ in range(claims):
        swarm = ClaimSwarm(claim(), terms)
        for k, side in enumerate(chance.permutation([-1.0, 1.0] * (MOST // 2)).tolist()):
            swarm.end("lucky", -LUCKY, "investigate", is_reference=False)
            swarm.end(f"w{k % (WORKERS - 1)}", side, "investigate", is_reference=False)
        settled.append(swarm.hypothesis.settled is not None)
        supported.append(swarm.hypothesis.status == "supported")
    return np.array(settled), np.array(supported)


# -- runs that look for the best config

WINNING = 0.9
"""Share of these runs that beat the baseline, whatever is claimed."""
PAIRED = 0.3
"""Share of turns in which such a population makes a pair instead."""


def strategies(report: FigureTable, chance: np.random.Generator, claims: int) -> None:
    """Effect of runs that look for the best config on claims that are not true."""
    report.section(
        f"{claims:,} claims that are not true, {2 * MOST} runs in the strategies that the belief calls for;"
        f" {100 * WINNING:g} % of those beside baselines win, {100 * PAIRED:g} % of their turns make a pair instead"
    )
    known = [_pursued(chance) for _ in range(claims)]
    report.rate("supported in the end", np.array([h.status == "supported" for h in known]))
    report.rate("irrelevant", np.array([h.settled == "irrelevant" for h in known]))
    false = np.array([h.settled in ("supported", "refuted") for h in known])
    report.rate("settled otherwise", false, 0.06)


def _pursued(chance: np.random.Generator) -> Hypothesis:
    swarm = ClaimSwarm(claim(), TERMS)
    while swarm.runs < 2 * MOST and swarm.hypothesis.settled not in ARCHIVED:
        strategy = strategy_of(swarm.hypothesis)
        if strategy in COMPARED or chance.random() < PAIRED:
            swarm.end("w", chance.normal(), "investigate", is_reference=True)
            swarm.end("w", chance.normal(), "investigate", is_reference=False)
        else:
            swarm.end("w", -1.0 if chance.random() < WINNING else 1.0, strategy, is_reference=False)
    return swarm.hypothesis


@click.command(help=__doc__)
@click.option("--claims", default=20_000, show_default=True, help="Claims that are not true.")
@click.option("--repeats", default=REPEATS, show_default=True, help="Swarms with early stopping.")
@click.option("--seed", default=17, show_default=True)
def main(claims: int, repeats: int, seed: int) -> None:
    began, report = time.process_time(), FigureTable()
    for k, part in enumerate((nulls, planted, coverage, irrelevance, influences)):
        part(report, np.random.default_rng([seed, k]), claims)
    stopped_runs(report, np.random.default_rng([seed, 10]), repeats)
    lucky_baseline(report, np.random.default_rng([seed, 11]), max(claims // 40, 1))
    strategies(report, np.random.default_rng([seed, 12]), max(claims // 100, 1))
    report.console.print(report.table)
    report.end(f"{time.process_time() - began:.0f} s of CPU")


if __name__ == "__main__":
    main()
