"""Run-to-run noise: how far two runs of the same code differ, and how sure that leaves us of a better one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace

from functions.rules.keeps.verdict import score
from state.records import Direction

FREAK = 1e-4
"""Runs less likely than this, on their side, are outliers: they do not count towards sigma."""


@dataclass(frozen=True)
class Noise:
    """The standard deviation of one run's value, in the metric's own unit."""

    sigma: float
    df: int
    """Degrees of freedom behind it, at least 1."""


def pooled(groups: Iterable[Sequence[float]]) -> Noise | None:
    """The noise that groups of runs share, each group being finite values of the same code.

    None while no group holds a second run: there is no degree of freedom yet.
    """
    deviations: list[float] = []
    df = 0
    for values in groups:
        if values:
            # From the first value, so that equal ones deviate by exactly nothing.
            shifts = [value - values[0] for value in values]
            mean = math.fsum(shifts) / len(shifts)
            deviations += [shift - mean for shift in shifts]
            df += len(values) - 1
    return Noise(math.hypot(*deviations) / math.sqrt(df), df) if df else None


def rounded(noise: Noise, resolution: float) -> Noise:
    """Not below what rounding hides: values rounded to steps lie uniformly within one, by step / sqrt(12)."""
    return Noise(max(noise.sigma, resolution / math.sqrt(12)), noise.df)


@dataclass(frozen=True)
class Repeats:
    """What is known of the runs of one code: how many, their mean, and the sum of squared deviations from it."""

    runs: int
    mean: float
    squares: float
    df: int | None = None
    """Of `runs - 1` those that count towards the noise; None, of an earlier version: all."""
    pooled: float | None = None
    """What they add to the noise's squares."""

    @property
    def share(self) -> tuple[int, float]:
        """Degrees of freedom and squares that stand in the noise for this code."""
        return (
            self.runs - 1 if self.df is None else self.df,
            self.squares if self.pooled is None else self.pooled,
        )


def repeated(before: Repeats | None, value: float) -> Repeats:
    """With one more run (B. P. Welford, Technometrics 4, 1962, p. 419: no difference of large sums is taken)."""
    if before is None:
        return Repeats(1, value, 0.0)
    shift = value - before.mean
    mean = before.mean + shift / (before.runs + 1)
    return Repeats(before.runs + 1, mean, before.squares + shift * (value - mean))


def run_again(before: Repeats | None, value: float, learned: Noise | None) -> tuple[Repeats, float | None]:
    """With one more run, and what that adds to the noise's squares: None for a first run, and for an outlier."""
    runs = repeated(before, value)
    if before is None:
        return replace(runs, df=0, pooled=0.0), None
    df, pooled = before.share
    if learned is not None and is_outlier(before, value, learned):
        return replace(runs, df=df, pooled=pooled), None
    added = runs.squares - before.squares
    return replace(runs, df=df + 1, pooled=pooled + added), added


def is_outlier(before: Repeats, value: float, noise: Noise) -> bool:
    """Whether a run is farther from the earlier runs of its code than noise explains (one time in 5,000).

    Such a run went wrong where the others went right; pooled, it would make every margin of the tag look like noise.
    By Student's t, so that few repeats rule out little. Where all runs were equal, nothing is an outlier.
    """
    error = standard_error(noise.sigma, 1, before.runs)
    if error == 0:
        return False
    from scipy.special import stdtrit

    return abs(value - before.mean) > float(stdtrit(noise.df, 1 - FREAK)) * error


def parsed(kept: str) -> Repeats | None:
    """Repeats from the JSON that stands beside their code; None where nothing does."""
    return Repeats(*json.loads(kept)) if kept else None


def written(runs: Repeats) -> str:
    """Repeats as the JSON that stands beside their code."""
    return json.dumps(astuple(runs))


def noise_of(squares: float, df: int) -> Noise | None:
    """The noise behind a sum of squared deviations; None while there is no degree of freedom."""
    return Noise(math.sqrt(squares / df), df) if df else None


@dataclass(frozen=True)
class Mean:
    """The mean value of one code's runs, and how many there are."""

    value: float
    runs: int = 1


@dataclass(frozen=True)
class Claim:
    """What may be claimed of an experiment: the mean of the runs that it was not chosen by."""

    claimed_bpb: float
    runs: int
    low: float | None
    """The 95 % interval of its true value; None while the noise is not known."""
    high: float | None


def claim(fresh: Sequence[float], noise: Noise | None) -> Claim | None:
    """The claim that fresh runs allow, by Student's t with the pooled noise; None without such a run."""
    if not fresh:
        return None
    mean = math.fsum(fresh) / len(fresh)
    if noise is None:
        return Claim(mean, len(fresh), None, None)
    from scipy.special import stdtrit

    reach = float(stdtrit(noise.df, 0.975)) * noise.sigma / math.sqrt(len(fresh))
    return Claim(mean, len(fresh), mean - reach, mean + reach)


def p_better(candidate: Mean, incumbent: Mean, noise: Noise, direction: Direction) -> float:
    """The probability, 0 to 1, that the candidate's true value is better than the incumbent's.

    The posterior of the difference of two normal means with a common variance, under the usual priors that know
    nothing: Student's t around the observed difference (Box and Tiao, Bayesian Inference in Statistical Analysis,
    1973, section 2.5; here the variance comes with the pooled sigma's own degrees of freedom). It does not know that
    a winner was chosen for its value, so it flatters a keep that was judged by its first run alone.
    """
    margin = score(incumbent.value, direction) - score(candidate.value, direction)
    error = standard_error(noise.sigma, candidate.runs, incumbent.runs)
    if margin == 0 or error == 0:
        return 0.5 if margin == 0 else float(margin > 0)
    from scipy.special import stdtr  # here, because it takes most of a second to import

    return float(stdtr(noise.df, margin / error))


def cautious(noise: Noise, sigmas: float) -> float:
    """A sigma enlarged for few repeats: `sigmas` times it is as safe a margin as with sigma known exactly.

    The normal distribution gives a margin of `sigmas` sigma between two single runs its chance; Student's t with the
    noise's degrees of freedom asks for more.
    """
    from scipy.special import ndtr, stdtrit

    error = standard_error(1.0, 1, 1)
    return float(noise.sigma * stdtrit(noise.df, ndtr(sigmas / error)) * error / sigmas)


def false_share(chances: Iterable[float | None]) -> float | None:
    """The mean probability that keeps with these chances of being better are not; None where none is known.

    It reads low: each chance knows nothing of the luck that its keep was chosen for.
    """
    doubts = [1 - chance for chance in chances if chance is not None]
    return math.fsum(doubts) / len(doubts) if doubts else None


def standard_error(sigma: float, runs: int, others: int) -> float:
    """Standard error of the difference between two means of `runs` and `others` runs."""
    return sigma * math.sqrt(1 / runs + 1 / others)
