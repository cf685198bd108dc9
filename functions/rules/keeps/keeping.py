"""Keep rules: whether a better run is kept, and whether it needs a second run first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from functions.rules.keeps.noise import standard_error

SURE_SIGMAS = 4.0
"""A margin of more sigmas than this needs no second run."""
ENOUGH_KEEPS = 10
"""Keeps after which a tag's largest gain says what is plausible."""
IMPLAUSIBLE = 5.0
"""A gain above so many times the largest one is run again."""
LEAST_ERRORS = 0.5
"""A candidate that ran again has to lead by this many standard errors of the difference."""


@dataclass(frozen=True)
class SeedScores:
    """Scores of one experiment's runs: lower is better (see `verdict.score`)."""

    name: str
    first: float
    """Score on the first seed, for which the experiment was chosen."""
    fresh: tuple[float, ...] = ()
    """Scores on the further seeds, in their order."""
    further: float | None = None
    """Mean of all further runs of its code, if noise does not explain their distance from the first; else None.
    The first score then says nothing about the code."""

    @property
    def contradicted(self) -> bool:
        return self.further is not None

    @property
    def claimed(self) -> float:
        """Mean of the fresh runs; without one, the first score, which is biased."""
        return math.fsum(self.fresh) / len(self.fresh) if self.fresh else self.first


Decision = Literal["keep", "provisional", "discard"]
"""`provisional`: the candidate is the new best until its second run says otherwise (`is_confirmed`)."""


class KeepRule(Protocol):
    """What to do with a finished run.

    `sigma` is one run's standard deviation, enlarged for few repeats (`noise.cautious`). None: it is not known yet. A
    margin above `plausible` needs a second run, whatever sigma is.
    """

    def decide(
        self,
        candidate: SeedScores,
        incumbent: SeedScores | None,
        sigma: float | None,
        plausible: float | None = None,
    ) -> Decision: ...


class StrictRule:
    """Keeps a lower score."""

    def decide(
        self,
        candidate: SeedScores,
        incumbent: SeedScores | None,
        sigma: float | None,
        plausible: float | None = None,
    ) -> Decision:
        return "keep" if incumbent is None or candidate.first < incumbent.first else "discard"


class ConfirmRule:
    """Keeps a lower score provisionally, unless noise cannot explain the margin."""

    def decide(
        self,
        candidate: SeedScores,
        incumbent: SeedScores | None,
        sigma: float | None,
        plausible: float | None = None,
    ) -> Decision:
        if incumbent is None:
            return "keep"
        margin = incumbent.first - candidate.first
        if margin <= 0:
            return "discard"
        is_sure = sigma is not None and margin > SURE_SIGMAS * sigma
        return "keep" if is_sure and (plausible is None or margin <= plausible) else "provisional"


def plausible_margin(largest_gain: float | None, keeps: int) -> float | None:
    """Largest plausible margin, from the tag's earlier gains; None while they are too few."""
    return IMPLAUSIBLE * largest_gain if largest_gain is not None and keeps >= ENOUGH_KEEPS else None


KEEP_RULES: Mapping[str, KeepRule] = {"strict": StrictRule(), "confirmed": ConfirmRule()}


def is_confirmed(candidate: SeedScores, incumbent: SeedScores, sigma: float | None) -> bool:
    """Whether a provisional keep stays, now that both have run on the second seed; else it is demoted.

    Only seeds that both have run count, so that a seed's own effect cancels out.

    Raises:
        ValueError: one of them has not run again.
    """
    if not (candidate.fresh and incumbent.fresh):
        raise ValueError(f"{candidate.name!r} and {incumbent.name!r} have to run again first")
    shared = 1 + min(len(candidate.fresh), len(incumbent.fresh))
    skipped = int(candidate.contradicted or incumbent.contradicted)
    ahead = _mean(incumbent, shared, skipped) - _mean(candidate, shared, skipped)
    runs = shared - skipped
    return ahead > 0 and ahead >= LEAST_ERRORS * standard_error(sigma or 0.0, runs, runs)


def borne_out(incumbent: SeedScores, shift: float) -> float | None:
    """The incumbent's score on the first seed, estimated from both seeds; None without a usable second run.

    `shift` is the usual difference: score on the second seed minus score on the first.
    """
    if not incumbent.fresh or incumbent.contradicted:
        return None
    return (incumbent.first + incumbent.fresh[0] - shift) / 2


def is_hopeless(candidate: float, bar: float | None) -> bool:
    """Whether a candidate's first run is already too weak to win a retest.

    It beats the incumbent's first run, but not `bar`, the estimate from both runs of the incumbent.
    """
    return bar is not None and candidate >= bar


def winner(raced: Sequence[SeedScores], incumbent: SeedScores, sigma: float | None) -> SeedScores | None:
    """The racer with the best mean, if it is confirmed against the incumbent; None keeps the incumbent.

    Raises:
        ValueError: a racer has not run again.
    """
    if not raced:
        return None
    shared = 1 + min(len(trial.fresh) for trial in raced)
    best = min(raced, key=lambda trial: _mean(trial, shared, int(trial.contradicted)))
    return best if is_confirmed(best, incumbent, sigma) else None


def _mean(trial: SeedScores, runs: int, skipped: int) -> float:
    """Mean of the first `runs` scores, without the `skipped` first ones."""
    return math.fsum((trial.first, *trial.fresh)[skipped:runs]) / (runs - skipped)
