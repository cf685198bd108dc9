"""Keep rules: whether a better run is kept, at once or until further runs of the same code bear it out."""

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
LEAST_ERRORS = 0.5
"""A candidate that ran again has to lead by this many standard errors of the difference."""


@dataclass(frozen=True)
class Trial:
    """What the runs of one experiment's code measured, as scores: lower is better (see `verdict.score`)."""

    name: str
    first: float
    """On the first seed: the run that it was chosen by."""
    fresh: tuple[float, ...] = ()
    """On the seeds after that, in their order: runs that it was not chosen by."""
    further: float | None = None
    """The mean of all further runs of its code, its own or another's, where they are farther from the first than
    noise explains: the first says nothing of the code then."""

    @property
    def contradicted(self) -> bool:
        return self.further is not None

    @property
    def claimed(self) -> float:
        """What may be claimed of it: the mean of its fresh runs; without one, the run that flatters it."""
        return math.fsum(self.fresh) / len(self.fresh) if self.fresh else self.first


Decision = Literal["keep", "provisional", "discard"]
"""`provisional`: the candidate is the new best until its second run says otherwise (`is_confirmed`)."""


class KeepRule(Protocol):
    """What to do with a finished run.

    `sigma` is one run's standard deviation, enlarged for few repeats (`noise.cautious`). None: it is not known yet. A
    margin above `plausible` needs a second run, whatever sigma is.
    """

    def decide(
        self, candidate: Trial, incumbent: Trial | None, sigma: float | None, plausible: float | None = None
    ) -> Decision: ...


class StrictRule:
    """Keeps a lower score."""

    def decide(
        self, candidate: Trial, incumbent: Trial | None, sigma: float | None, plausible: float | None = None
    ) -> Decision:
        return "keep" if incumbent is None or candidate.first < incumbent.first else "discard"


class ConfirmRule:
    """Keeps a lower score provisionally, unless noise cannot explain the margin."""

    def decide(
        self, candidate: Trial, incumbent: Trial | None, sigma: float | None, plausible: float | None = None
    ) -> Decision:
        if incumbent is None:
            return "keep"
        margin = incumbent.first - candidate.first
        if margin <= 0:
            return "discard"
        is_sure = sigma is not None and margin > SURE_SIGMAS * sigma
        return "keep" if is_sure and (plausible is None or margin <= plausible) else "provisional"


def plausible_margin(largest_gain: float | None, keeps: int, factor: float) -> float | None:
    """The largest margin that a tag's earlier gains make plausible; None while they are too few to tell."""
    return factor * largest_gain if largest_gain is not None and keeps >= ENOUGH_KEEPS else None


KEEP_RULES: Mapping[str, KeepRule] = {"strict": StrictRule(), "confirmed": ConfirmRule()}


def is_confirmed(candidate: Trial, incumbent: Trial, sigma: float | None) -> bool:
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


def borne_out(incumbent: Trial, shift: float) -> float | None:
    """The incumbent's score on the first seed, by its runs on both; None while only one of them says something.

    `shift` is by how much scores on the second seed lie above those on the first.
    """
    if not incumbent.fresh or incumbent.contradicted:
        return None
    return (incumbent.first + incumbent.fresh[0] - shift) / 2


def is_hopeless(candidate: float, bar: float | None) -> bool:
    """Whether a candidate needs no second run, because its first run already shows that it will not be kept.

    It beats the incumbent's first run, which was unlucky. It does not beat what both runs of the incumbent show, so
    it would have to be luckier on the second seed than on the first.
    """
    return bar is not None and candidate >= bar


def winner(raced: Sequence[Trial], incumbent: Trial, sigma: float | None) -> Trial | None:
    """The racer with the best mean, if it is confirmed against the incumbent; None keeps the incumbent.

    Raises:
        ValueError: a racer has not run again.
    """
    if not raced:
        return None
    shared = 1 + min(len(trial.fresh) for trial in raced)
    best = min(raced, key=lambda trial: _mean(trial, shared, int(trial.contradicted)))
    return best if is_confirmed(best, incumbent, sigma) else None


def _mean(trial: Trial, runs: int, skipped: int) -> float:
    """Of the first runs, without those that are skipped at the beginning."""
    return math.fsum((trial.first, *trial.fresh)[skipped:runs]) / (runs - skipped)
