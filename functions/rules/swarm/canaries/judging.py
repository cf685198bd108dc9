"""How the trial of a dimension ends: by the best run that varied it beside the best that did not, both run again.

That a run was kept says little of the dimension: of a dozen runs the luckiest one is kept, and the search may have
found something better meanwhile without it. So the rival is the best run that left the dimension at its default,
whenever that was found, and both are compared by further runs alone, none of which they were chosen by. A run that
was the best until its first retest counts, too: beside a rival that was lucky a true gain falls often.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from functions.rules.keeps.noise import Mean, p_better, pooled
from functions.rules.keeps.retests import fresh_runs
from functions.rules.keeps.verdict import TOLERANCE, score
from functions.rules.swarm.canaries.proposing import line_of
from functions.rules.swarm.canaries.trying import tries
from state.facts import RetestFacts
from state.records import OPEN, Dimension, ProposedDimension
from state.trial_facts import RESULTS, KeptRun, TrialFacts, TriedRun

JUDGED_AFTER = 40
"""Results after which a trial is judged, of runs that were handed out since it began."""
LEAST_VARIED = 12
"""Of these, those that have to have varied the dimension."""
JUDGED_BY = 250
"""The same, whatever varied it: 12 % of 250 runs are fewer than 12 in 3 of 100,000 trials."""
LEAST_GAIN = 0.001
"""By which the best has to have improved in the runs that varied it."""
REPEATS = 6
"""Further runs of either config, by which the gain is measured."""
SPARE = 2
"""Of these, those that may come to no value before no more are begun."""
SURE = 0.975
"""How probable it has to be that the gain is above 0."""

Repeated = Mapping[str, RetestFacts]
"""Runs with their further runs, by their ids."""


@dataclass(frozen=True)
class Verdict:
    """How a trial ends."""

    is_promoted: bool
    reason: str
    varied: int
    """Results that varied the dimension."""
    gain: float | None
    """By how much the best of them beats the best run without it; above 0 is better, None: none was kept."""


@dataclass(frozen=True)
class Trial:
    """A dimension on trial, and the runs that were handed out since it began."""

    proposal: ProposedDimension
    dimension: Dimension
    facts: TrialFacts
    ran: Sequence[TriedRun]

    @cached_property
    def counted(self) -> Sequence[TriedRun]:
        """Its results: those of runs that were handed out before it do not count."""
        return [run for run in self.ran if self._is_new(run) and run.status in RESULTS]

    @cached_property
    def varied(self) -> int:
        return sum(tries(run.config_delta, self.dimension) for run in self.counted)

    @property
    def is_last(self) -> bool:
        """It does not wait for more results."""
        return len(self.counted) >= JUDGED_BY

    @property
    def is_due(self) -> bool:
        return self.is_last or (len(self.counted) >= JUDGED_AFTER and self.varied >= LEAST_VARIED)

    @cached_property
    def best(self) -> KeptRun | TriedRun | None:
        """The best run that varied it and was kept, demoted ones among them; no provisional one."""
        kept: list[KeptRun | TriedRun] = [k for k in self.facts.keeps if self._is_new(k)]
        kept += [run for run in self.counted if run.trust == "demoted" and run.judged is not None]
        own = [run for run in kept if run.trust != "provisional" and tries(run.config_delta, self.dimension)]
        return min(own, key=lambda run: self._score(run.judged), default=None)

    @cached_property
    def rival(self) -> KeptRun | None:
        """The best keep that did not vary it, from before the trial or from now; no provisional one."""
        others = (k for k in self.facts.keeps if not tries(k.config_delta, self.dimension))
        return next((k for k in others if k.trust != "provisional"), None)

    @property
    def is_open(self) -> bool:
        """The tag's best, or a rival of it, waits for its first retest: that may change which run is the best one."""
        best = self.facts.best
        return best is not None and bool(self.facts.policy.max_retests and (best.chain[1:] or best.rivals))

    @cached_property
    def first_gain(self) -> float | None:
        """By how much the best one beats the rival in the runs that they were kept for; None: there is none."""
        return None if self.best is None else self._score(self._rival_s) - self._score(self.best.judged)

    def gain(self, repeated: Repeated) -> tuple[float, float] | None:
        """By how much the best one beats the rival in further runs, and how probable a true gain is; None: unknown.

        A rival that cannot be run again counts with its value, as one run. The unchanged train.py is 0 by
        definition; it counts as if it were run as often as the best one.
        """
        assert self.best is not None
        fresh = further_values(repeated, self.best)
        theirs = [] if self.rival is None else further_values(repeated, self.rival)
        noise = pooled([fresh, theirs])
        if not fresh or noise is None:
            return None
        best = Mean(math.fsum(fresh) / len(fresh), len(fresh))
        if theirs:
            rival = Mean(math.fsum(theirs) / len(theirs), len(theirs))
        else:
            rival = Mean(self._rival_s, 1 if self.rival is not None else len(fresh))
        chance = p_better(best, rival, noise, self.facts.tag.direction)
        return self._score(rival.value) - self._score(best.value), chance

    @property
    def _rival_s(self) -> float:
        """What the rival was kept for; without one, what was the best as the trial began."""
        value = self.proposal.best_before if self.rival is None else self.rival.judged
        assert value is not None
        return value

    def _is_new(self, run: TriedRun | KeptRun) -> bool:
        return run.number > (self.proposal.adopted_number or 0)

    def _score(self, value: float | None) -> float:
        assert value is not None
        return score(value, self.facts.tag.direction)


def contested(trial: Trial) -> list[str]:
    """The runs whose further runs decide a trial: of its best one and of the rival; none while none do."""
    if not trial.is_due or trial.varied < LEAST_VARIED or not trial.facts.policy.max_retests:
        return []
    if trial.first_gain is None or trial.first_gain <= 0 or (trial.is_open and not trial.is_last):
        return []
    return [k.experiment_id for k in (trial.best, trial.rival) if k is not None]


def verdict(trial: Trial, repeated: Repeated) -> Verdict | None:
    """How a trial ends; None: it goes on, or its best run and the rival are still being run again."""
    if not trial.is_due:
        return None
    told = f"{trial.varied} of {len(trial.counted)} results varied it"
    if trial.varied < LEAST_VARIED:
        lacks = f"a train.py needs the line {line_of(trial.proposal)!r:.100}"
        return Verdict(False, f"only {told}: {lacks}", trial.varied, None)
    if trial.is_open and not trial.is_last:
        return None
    first = trial.first_gain
    if trial.best is None or first is None:
        return Verdict(False, f"{told}, and none improved the best", trial.varied, None)
    names = contested(trial)
    if not names:
        # no further runs: none would help, or the tag's policy has none made
        return Verdict(_is_enough(first), f"{told}; {_said(first)}", trial.varied, first)
    if not all(is_repeated(repeated.get(name)) for name in names):
        return None
    measured = trial.gain(repeated)
    if measured is None:
        return Verdict(False, f"{told}; {_said(first)}, but could not be run again", trial.varied, first)
    gain, chance = measured
    is_enough, is_sure = _is_enough(gain), chance >= SURE
    luck = ", which may be chance" if is_enough and not is_sure else ""
    runs = len(further_values(repeated, trial.best))
    reason = f"{told}; run again {runs} times, {_said(gain)}{luck}"
    return Verdict(is_enough and is_sure, reason, trial.varied, gain)


def lacking(run: RetestFacts) -> bool:
    """Whether one more further run of this one is to begin."""
    e = run.experiment
    fresh, under_way = len(fresh_runs(e, run.retests)), sum(r.status in OPEN for r in run.retests)
    is_vain = len(run.retests) - fresh - under_way > SPARE
    return e.can_run_again and not is_vain and fresh + under_way < REPEATS


def is_repeated(run: RetestFacts | None) -> bool:
    """Whether all its further runs are over."""
    return run is not None and not lacking(run) and not any(r.status in OPEN for r in run.retests)


def further_values(repeated: Repeated, of: KeptRun | TriedRun) -> list[float]:
    """What the further runs of this one have measured."""
    run = repeated.get(of.experiment_id)
    fresh = [] if run is None else fresh_runs(run.experiment, run.retests)
    return [r.own_value for r in fresh if r.own_value is not None]


def _said(gain: float) -> str:
    """A gain in words."""
    if gain <= 0:
        return "the best of them does not beat the best without it"
    only = "" if _is_enough(gain) else " only"
    return f"the best of them beats the best without it by {gain:.4g}{only}"


def _is_enough(gain: float) -> bool:
    return gain >= LEAST_GAIN - TOLERANCE
