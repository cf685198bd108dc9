"""Run-to-run noise: its estimate from repeats of the same code, and what it means for a comparison."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from functions.experiments.rules.verdict import near_band
from state.facts import Noise, Spread
from state.policy import Policy
from state.records import Direction, dumps, score

FREAK = 1e-4
"""One-sided probability below which a run is an outlier and does not count towards sigma."""
CONTRADICTED = 1e-3
"""The same threshold for a first run beside the further runs of its code: below it the first run no longer counts.
It is larger, because the code was chosen for its first run."""

FAR = 0.8
"""Share of the steps per second of another run of its code below which a run was disturbed. See contention.py."""
SURE = 0.8
"""Confidence of the upper bound on sigma in `usual_distance`."""


def pooled(groups: Iterable[Sequence[float]]) -> Noise | None:
    """Pooled noise of groups of finite values, one group for each code; None while no group holds a second run."""
    deviations: list[float] = []
    df = 0
    for values in groups:
        if values:
            # relative to the first value, so that equal values deviate by exactly 0
            shifts = [value - values[0] for value in values]
            mean = math.fsum(shifts) / len(shifts)
            deviations += [shift - mean for shift in shifts]
            df += len(values) - 1
    return Noise(math.hypot(*deviations) / math.sqrt(df), df) if df else None


def rounded(noise: Noise, resolution: float) -> Noise:
    """At least the noise that rounding adds: step / sqrt(12), for values uniform within a step."""
    return Noise(max(noise.sigma, resolution / math.sqrt(12)), noise.df)


class Repeats(NamedTuple):
    """Summary of the runs of one code: number, mean, and sum of squared deviations from the mean."""

    runs: int
    mean: float
    squares: float
    df: int = 0
    """Degrees of freedom that these runs add to the noise: at most `runs - 1`, outliers do not count."""
    pooled: float = 0.0
    """Squares that they add to the noise."""
    first: float | None = None
    is_contradicted: bool = False
    """Further runs have contradicted the first, which no longer counts in `runs` or in the sums."""
    steps: float | None = None
    """Steps per second of the first run; None: not counted."""


def further_mean(runs: Repeats | None, value: float) -> float | None:
    """Mean of a code's further runs if they contradict its first run, which has this `value`; else None."""
    if runs is None or not runs.is_contradicted or runs.first != value or runs.mean == value:
        return None
    return runs.mean


def repeated(before: Repeats | None, value: float) -> Repeats:
    """The summary with one more run (B. P. Welford, Technometrics 4, 1962, p. 419)."""
    if before is None:
        return Repeats(1, value, 0.0)
    shift = value - before.mean
    mean = before.mean + shift / (before.runs + 1)
    squares = before.squares + shift * (value - mean)
    return before._replace(runs=before.runs + 1, mean=mean, squares=squares)


def without(sums: Spread, runs: Repeats | None) -> Spread:
    """The sums of all other code."""
    df, squares = (runs.df, runs.pooled) if runs else (0, 0.0)
    return Spread(max(sums.df - df, 0), max(sums.squares - squares, 0.0))


def run_again(
    before: Repeats | None, value: float, others: Spread, steps: float | None = None
) -> tuple[Repeats, Spread]:
    """The summary with one more run, and the change of the noise; `others` is the noise of all other code.

    A first run and an outlier do not change the noise. If the further runs contradict the first, or one was so much
    faster that another program must have slowed the first down, its part is removed. `steps`: made in a second.
    """
    if before is None:
        return Repeats(1, value, 0.0, 0, 0.0, value, steps=steps), Spread()
    after = _without_first(before, value, others, steps)
    if after is None:
        after = repeated(before, value)
        learned = others.with_(Spread(before.df, before.pooled)).noise
        if learned is not None and is_outlier(before, value, learned):
            return after, Spread()
        after = after._replace(df=before.df + 1, pooled=before.pooled + after.squares - before.squares)
    return after, change_of(before, after)


def run_of_worker(
    config: Repeats | None, own: Repeats | None, value: float, others: Spread
) -> tuple[Repeats, Repeats, Spread]:
    """One more run of a swarm's worker: all runs of its config, its own runs of it, and the change of the noise.

    A worker's baseline is measured once, and its error is part of all of its values. So noise comes from repeats by
    the same worker, while the mean of a config is over all workers. `others` is the noise without its own runs.
    """
    after, _ = run_again(config, value, others)
    its, learned = run_again(own, value, others)
    return after._replace(df=0, pooled=0.0), its, learned


def change_of(before: Repeats | None, after: Repeats | None) -> Spread:
    """Change of the noise when the summary of some code changes."""
    was, now = (Spread(r.df, r.pooled) if r else Spread() for r in (before, after))
    return Spread(now.df - was.df, now.squares - was.squares)


def _without_first(before: Repeats, value: float, others: Spread, steps: float | None) -> Repeats | None:
    """The summary without the first run, if noise does not explain that run, or it was disturbed; else None."""
    first = before.first
    if first is None or before.is_contradicted:
        return None
    further: Repeats | None = None
    if before.runs > 1:
        shift = (first - before.mean) / (before.runs - 1)
        squares = before.squares - (first - before.mean) * (first - before.mean + shift)
        further = Repeats(before.runs - 1, before.mean - shift, max(squares, 0.0))
    further = repeated(further, value)
    if steps is None or before.steps is None or before.steps >= FAR * steps:
        noise = others.with_(Spread(further.runs - 1, further.squares)).noise
        if noise is None or not is_outlier(further, first, noise, CONTRADICTED):
            return None
    return further._replace(df=further.runs - 1, pooled=further.squares, first=first, is_contradicted=True)


def is_outlier(others: Repeats, value: float, noise: Noise, chance: float = FREAK) -> bool:
    """Whether a run is less likely than `chance`, one-sided, given the other runs of its code and the noise.

    Pooled, such a run would make every margin of the tag look like noise. The test is Student's t. With a sigma of 0
    nothing is an outlier.
    """
    error = standard_error(noise.sigma, 1, others.runs)
    if error == 0:
        return False
    from scipy.special import stdtrit

    return abs(value - others.mean) > float(stdtrit(noise.df, 1 - chance)) * error


def parsed(kept: str) -> Repeats | None:
    """The summary from its stored JSON; None for an empty text."""
    return Repeats(*json.loads(kept)) if kept else None


def written(runs: Repeats) -> str:
    """The summary as JSON, to be stored."""
    return dumps(runs)


class Mean(NamedTuple):
    value: float
    runs: int = 1


@dataclass(frozen=True)
class ClaimedValue:
    """Unbiased value of an experiment: the mean of the runs for which it was not chosen."""

    claimed_bpb: float
    runs: int
    low: float | None
    """Lower end of the 95 % confidence interval; None while the noise is not known."""
    high: float | None


def claim(fresh: Sequence[float], noise: Noise | None) -> ClaimedValue | None:
    """Mean and confidence interval of fresh runs, by Student's t with the pooled noise; None without such a run."""
    if not fresh:
        return None
    mean = math.fsum(fresh) / len(fresh)
    if noise is None:
        return ClaimedValue(mean, len(fresh), None, None)
    from scipy.special import stdtrit

    reach = float(stdtrit(noise.df, 0.975)) * noise.sigma / math.sqrt(len(fresh))
    return ClaimedValue(mean, len(fresh), mean - reach, mean + reach)


def p_better(candidate: Mean, incumbent: Mean, noise: Noise, direction: Direction) -> float:
    """The probability, 0 to 1, that the candidate's true value is better than the incumbent's.

    The posterior of the difference of two normal means with a common variance, under the usual priors that know
    nothing: Student's t around the observed difference, with the pooled sigma's degrees of freedom (Box and Tiao,
    Bayesian Inference in Statistical Analysis, 1973, section 2.5). It ignores that a winner was chosen for its value,
    so it is too high for a keep with one run.
    """
    margin = score(incumbent.value, direction) - score(candidate.value, direction)
    error = standard_error(noise.sigma, candidate.runs, incumbent.runs)
    if margin == 0 or error == 0:
        return 0.5 if margin == 0 else float(margin > 0)
    from scipy.special import stdtr  # here, because it takes most of a second to import

    return float(stdtr(noise.df, margin / error))


def cautious(noise: Noise, sigmas: float) -> float:
    """Sigma enlarged for few repeats.

    A margin of `sigmas` times the answer is as unlikely under Student's t as `sigmas` sigma between two single runs
    are under the normal distribution.
    """
    from scipy.special import ndtr, stdtrit

    error = standard_error(1.0, 1, 1)
    return float(noise.sigma * stdtrit(noise.df, ndtr(sigmas / error)) * error / sigmas)


def usual_distance(noise: Noise) -> float:
    """Median distance between two runs of one code, for the upper confidence bound on sigma (one-sided, SURE)."""
    from scipy.special import chdtri, ndtri

    largest = noise.sigma * math.sqrt(noise.df / chdtri(noise.df, SURE))
    return float(ndtri(0.75) * standard_error(largest, 1, 1))


def false_share(chances: Iterable[float | None]) -> float | None:
    """Estimated share of keeps that are no improvement, from their probabilities of being better; None without one.

    The estimate is too low, because the probabilities ignore that each keep was chosen for its value.
    """
    doubts = [1 - chance for chance in chances if chance is not None]
    return math.fsum(doubts) / len(doubts) if doubts else None


def standard_error(sigma: float, runs: int, others: int) -> float:
    """Standard error of the difference between two means of `runs` and `others` runs."""
    return sigma * math.sqrt(1 / runs + 1 / others)


LEAST = 0.002
"""Margin while the noise is not known, and the smallest margin by default."""


def near_margin(policy: Policy, noise: Noise | None) -> float:
    """Near-miss margin: the policy's, else the larger of LEAST and one sigma of the difference of two runs."""
    if policy.near_miss_margin is not None:
        return policy.near_miss_margin
    return max(LEAST, standard_error(noise.sigma, 1, 1)) if noise else LEAST


def near_scores(best: float, direction: Direction, policy: Policy, spread: Spread) -> tuple[float, float]:
    """Range of scores (lower = better) of near misses."""
    margin = near_margin(policy, spread.noise)
    return near_band(best, direction, margin)
