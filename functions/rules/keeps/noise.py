"""Run-to-run noise: how far two runs of the same code differ, and how sure that leaves us of a better one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from functions.rules.keeps.verdict import near_band, score
from state.facts import Spread
from state.records import Direction

FREAK = 1e-4
"""Runs less likely than this, on their side, are outliers: they do not count towards sigma."""
CONTRADICTED = 1e-3
"""A first run less likely than this beside the further runs of its code leaves their mean and the noise. Its code was
chosen by it, so it takes less to doubt it than any other."""

SURE = 0.8
"""How surely the noise is not larger than what two runs of one code are taken to differ by."""


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
    df: int = 0
    """Degrees of freedom that these runs add to the noise: at most `runs - 1`, outliers do not count."""
    pooled: float = 0.0
    """Squares that they add to the noise."""
    first: float | None = None
    """Value of the first run."""
    is_contradicted: bool = False
    """Further runs have contradicted the first, which no longer counts in `runs` or in the sums."""


def further_mean(runs: Repeats | None, value: float) -> float | None:
    """The mean of a code's further runs, where they contradict its first run, which has this value; else None."""
    if runs is None or not runs.is_contradicted or runs.first != value or runs.mean == value:
        return None
    return runs.mean


def repeated(before: Repeats | None, value: float) -> Repeats:
    """With one more run (B. P. Welford, Technometrics 4, 1962, p. 419: no difference of large sums is taken)."""
    if before is None:
        return Repeats(1, value, 0.0)
    shift = value - before.mean
    mean = before.mean + shift / (before.runs + 1)
    squares = before.squares + shift * (value - mean)
    return replace(before, runs=before.runs + 1, mean=mean, squares=squares)


@dataclass(frozen=True)
class Sums:
    """Squared deviations and their degrees of freedom, or what changes of them."""

    df: int = 0
    squares: float = 0.0

    def with_(self, more: Sums) -> Sums:
        return Sums(self.df + more.df, self.squares + more.squares)

    def without(self, runs: Repeats | None) -> Sums:
        """Those of all other code."""
        df, squares = (runs.df, runs.pooled) if runs else (0, 0.0)
        return Sums(max(self.df - df, 0), max(self.squares - squares, 0.0))

    @property
    def noise(self) -> Noise | None:
        return noise_of(self.squares, self.df)


def run_again(before: Repeats | None, value: float, others: Sums) -> tuple[Repeats, Sums]:
    """With one more run, and what that changes of the noise; `others` is the noise of all other code.

    A first run and an outlier change nothing. A first run that the others contradict takes its part back.
    """
    if before is None:
        return Repeats(1, value, 0.0, 0, 0.0, value), Sums()
    after = _without_first(before, value, others)
    if after is None:
        after = repeated(before, value)
        learned = others.with_(Sums(before.df, before.pooled)).noise
        if learned is not None and is_outlier(before, value, learned):
            return after, Sums()
        after = replace(after, df=before.df + 1, pooled=before.pooled + after.squares - before.squares)
    return after, change_of(before, after)


def run_of_worker(
    config: Repeats | None, own: Repeats | None, value: float, others: Sums
) -> tuple[Repeats, Repeats, Sums]:
    """One more run of a swarm's worker: the runs of its config, its own of these, and what they change of the noise.

    A worker's baseline is measured once and is part of all of its values. So the mean of a config is that of all
    workers, and the noise is that of one worker's repeats. `others` is the noise of all but its own runs.
    """
    after, _ = run_again(config, value, others)
    its, learned = run_again(own, value, others)
    return without_noise(after), its, learned


def without_noise(runs: Repeats) -> Repeats:
    """The same runs, which add nothing to the noise."""
    return replace(runs, df=0, pooled=0.0)


def change_of(before: Repeats | None, after: Repeats | None) -> Sums:
    """By how much the noise changes as what is kept of some runs does."""
    was, now = (Sums(r.df, r.pooled) if r else Sums() for r in (before, after))
    return Sums(now.df - was.df, now.squares - was.squares)


def _without_first(before: Repeats, value: float, others: Sums) -> Repeats | None:
    """The runs without the first, where the noise of these and of all other code does not explain it; else None."""
    first = before.first
    if first is None or before.is_contradicted:
        return None
    further: Repeats | None = None
    if before.runs > 1:
        shift = (first - before.mean) / (before.runs - 1)
        squares = before.squares - (first - before.mean) * (first - before.mean + shift)
        further = Repeats(before.runs - 1, before.mean - shift, max(squares, 0.0))
    further = repeated(further, value)
    noise = others.with_(Sums(further.runs - 1, further.squares)).noise
    if noise is None or not is_outlier(further, first, noise, CONTRADICTED):
        return None
    return replace(further, df=further.runs - 1, pooled=further.squares, first=first, is_contradicted=True)


def is_outlier(others: Repeats, value: float, noise: Noise, chance: float = FREAK) -> bool:
    """Whether a run is farther from the other runs of its code than noise explains, but for this chance on each side.

    Such a run went wrong where the others went right; pooled, it would make every margin of the tag look like noise.
    By Student's t, so that few repeats rule out little. Where all runs were equal, nothing is an outlier.
    """
    error = standard_error(noise.sigma, 1, others.runs)
    if error == 0:
        return False
    from scipy.special import stdtrit

    return abs(value - others.mean) > float(stdtrit(noise.df, 1 - chance)) * error


def parsed(kept: str) -> Repeats | None:
    """Repeats from the JSON that stands beside their code; None where nothing does."""
    return Repeats(*json.loads(kept)) if kept else None


def written(runs: Repeats) -> str:
    """Repeats as the JSON that stands beside their code."""
    return json.dumps([*vars(runs).values()])


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


def usual_distance(noise: Noise) -> float:
    """What two runs of one code lie apart by, half of the time, or a little more.

    Few repeats may show less noise than there is: sigma counts as the upper end of its one-sided interval, at a
    confidence of SURE.
    """
    from scipy.special import chdtri, ndtri

    largest = noise.sigma * math.sqrt(noise.df / chdtri(noise.df, SURE))
    return float(ndtri(0.75) * standard_error(largest, 1, 1))


def false_share(chances: Iterable[float | None]) -> float | None:
    """The mean probability that keeps with these chances of being better are not; None where none is known.

    It reads low: each chance knows nothing of the luck that its keep was chosen for.
    """
    doubts = [1 - chance for chance in chances if chance is not None]
    return math.fsum(doubts) / len(doubts) if doubts else None


def standard_error(sigma: float, runs: int, others: int) -> float:
    """Standard error of the difference between two means of `runs` and `others` runs."""
    return sigma * math.sqrt(1 / runs + 1 / others)


LEAST = 0.002
"""Margin while the noise is not known, and the least one by default."""


def near_margin(of_policy: float | None, noise: Noise | None) -> float:
    """The policy's margin; by default at least one sigma of the difference between two runs."""
    if of_policy is not None:
        return of_policy
    return max(LEAST, standard_error(noise.sigma, 1, 1)) if noise else LEAST


def near_scores(
    best: float, direction: Direction, of_policy: float | None, spread: Spread
) -> tuple[float, float]:
    """Scores (lower = better) of near misses, for stores that count and list them."""
    margin = near_margin(of_policy, noise_of(spread.squares, spread.df))
    return near_band(best, direction, margin)
