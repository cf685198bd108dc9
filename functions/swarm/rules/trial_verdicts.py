"""Runs that try a proposed dimension, and the verdict of its trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from functions.experiments.rules.verdict import TOLERANCE
from functions.swarm.rules.dimensions import same
from functions.swarm.rules.rooms import Room, room_of
from functions.swarm.rules.shapes import CANARY_SHARE, Shape, standing_config
from functions.swarm.rules.trial_proposals import line_of
from functions.trust.rules.noise import Mean, p_better, pooled
from functions.trust.rules.retests import fresh_runs
from state.facts import RetestFacts
from state.records import OPEN, Dimension, ProposedDimension, Value, score
from state.swarm_facts import RESULTS, KeptRun, TrialFacts, TriedRun

if TYPE_CHECKING:
    from random import Random


# -- Runs that try a dimension on trial: the best known config with another value of this one dimension.
#
# So a gain over the best is due to the dimension alone. Configs of all other runs leave it out: a train.py without
# the constant can run them.

NEAR = 1 / 8
"""Share of the range on either side of the best known value, from which half of the values are drawn."""


def drawn_trial(dimensions: Sequence[Dimension], rng: Random) -> Dimension | None:
    """The dimension that the next run tries, drawn by their shares of the runs; None for a usual run."""
    on_trial = [d for d in dimensions if d.on_trial]
    if not on_trial:
        return None
    place = rng.random()
    for dimension in on_trial:
        place -= CANARY_SHARE if dimension.canary_prob is None else dimension.canary_prob
        if place < 0:
            return dimension
    return None


def trial_config(
    tried: Dimension, dimensions: Sequence[Dimension], best_config: Mapping[str, Value], rng: Random
) -> dict[str, Value]:
    """The best known config (or the middle of the ranges) with another value of this dimension, never its default.

    Once the best config has a value of it, half of the values are drawn near that one.
    """
    base = standing_config(dimensions, Shape("exploit", center=best_config))
    known = best_config.get(tried.name)
    room = _others(tried)
    if isinstance(known, int | float) and not isinstance(known, bool) and room.spans and rng.random() < 0.5:
        room = room.near(known, NEAR)
    return {**base, tried.name: room.drawn(rng)}


def tries(config: Mapping[str, object], dimension: Dimension) -> bool:
    """Whether a config sets the dimension to another value than its default."""
    value = config.get(dimension.name)
    return value is not None and not same(value, dimension.default_value)


def _others(tried: Dimension) -> Room:
    """The values of a dimension without its default."""
    whole = room_of(tried)
    assert whole is not None
    assert tried.default_value is not None
    return whole.without(tried.default_value)


# -- Verdict of a dimension's trial: the best run that varied it against the best run that did not, both repeated.
#
# A single keep is no evidence: the luckiest of a dozen runs is kept. Meanwhile the search may have found something
# better without the dimension. So the rival is the best run with the dimension at its default, whenever it ran.
# Only repeats are compared, never the runs by which the two were chosen. A run that lost the best place in its
# first retest counts, too: against a lucky rival a true gain often loses it.

JUDGED_AFTER = 40
"""Results of runs handed out since a trial began, after which it may be judged."""
LEAST_VARIED = 12
"""Results among them that must have varied the dimension."""
JUDGED_BY = 250
"""Results after which it is judged in any case. 12 % of 250 runs are fewer than 12 in 3 of 100,000 trials."""
LEAST_GAIN = 0.001
"""Gain that is needed for promotion."""
REPEATS = 6
"""Repeats of either config, by which the gain is measured."""
SPARE = 2
"""Repeats without a value after which no more are begun."""
SURE = 0.975
"""Probability of a gain above 0 that is needed for promotion."""

Repeated = Mapping[str, RetestFacts]


@dataclass(frozen=True)
class TrialVerdict:
    is_promoted: bool
    reason: str
    varied: int
    """Results that varied the dimension."""
    gain: float | None
    """Gain of the best of them over the best run without it; above 0 is better. None: none was kept."""


@dataclass(frozen=True)
class DimensionTrial:
    """A dimension on trial, and the runs that were handed out since its trial began."""

    proposal: ProposedDimension
    dimension: Dimension
    facts: TrialFacts
    ran: Sequence[TriedRun]

    @cached_property
    def counted(self) -> Sequence[TriedRun]:
        """Its results, without those of earlier runs."""
        return [run for run in self.ran if self._is_new(run) and run.status in RESULTS]

    @cached_property
    def varied(self) -> int:
        return sum(tries(run.config_delta, self.dimension) for run in self.counted)

    @property
    def is_complete(self) -> bool:
        """It waits for no more results."""
        return len(self.counted) >= JUDGED_BY

    @property
    def is_due(self) -> bool:
        return self.is_complete or (len(self.counted) >= JUDGED_AFTER and self.varied >= LEAST_VARIED)

    @cached_property
    def best(self) -> KeptRun | TriedRun | None:
        """The best run that varied it and was kept or demoted; not a provisional one."""
        kept: list[KeptRun | TriedRun] = [k for k in self.facts.keeps if self._is_new(k)]
        kept += [run for run in self.counted if run.trust == "demoted" and run.judged is not None]
        own = [run for run in kept if run.trust != "provisional" and tries(run.config_delta, self.dimension)]
        return min(own, key=lambda run: self._score(run.judged), default=None)

    @cached_property
    def rival(self) -> KeptRun | None:
        """The best keep that did not vary it, from any time; not a provisional one."""
        others = (k for k in self.facts.keeps if not tries(k.config_delta, self.dimension))
        return next((k for k in others if k.trust != "provisional"), None)

    @property
    def is_open(self) -> bool:
        """The tag's best, or a rival of it, waits for its first retest, which may change the best run."""
        best = self.facts.best
        return best is not None and bool(self.facts.policy.max_retests and (best.chain[1:] or best.rivals))

    @cached_property
    def first_gain(self) -> float | None:
        """Gain of the best run over the rival in their first runs; None without a best run."""
        return None if self.best is None else self._score(self._rival_value) - self._score(self.best.judged)

    def gain(self, repeated: Repeated) -> tuple[float, float] | None:
        """Gain of the best run over the rival in repeats, and the probability of a true gain; None if unknown.

        A rival that cannot be repeated counts as one run with its value. The unchanged train.py is 0 by definition
        and counts as many runs as the best one.
        """
        assert self.best is not None
        fresh = repeat_values(repeated, self.best)
        theirs = [] if self.rival is None else repeat_values(repeated, self.rival)
        noise = pooled([fresh, theirs])
        if not fresh or noise is None:
            return None
        best = Mean(math.fsum(fresh) / len(fresh), len(fresh))
        if theirs:
            rival = Mean(math.fsum(theirs) / len(theirs), len(theirs))
        else:
            rival = Mean(self._rival_value, 1 if self.rival is not None else len(fresh))
        chance = p_better(best, rival, noise, self.facts.tag.direction)
        return self._score(rival.value) - self._score(best.value), chance

    @property
    def _rival_value(self) -> float:
        """The rival's first value; without a rival, the best value when the trial began."""
        value = self.proposal.best_before if self.rival is None else self.rival.judged
        assert value is not None
        return value

    def _is_new(self, run: TriedRun | KeptRun) -> bool:
        return run.number > (self.proposal.adopted_number or 0)

    def _score(self, value: float | None) -> float:
        assert value is not None
        return score(value, self.facts.tag.direction)


def runs_to_repeat(trial: DimensionTrial) -> list[str]:
    """Ids of the best run and the rival, once their repeats decide the trial; else none."""
    if not trial.is_due or trial.varied < LEAST_VARIED or not trial.facts.policy.max_retests:
        return []
    if trial.first_gain is None or trial.first_gain <= 0 or (trial.is_open and not trial.is_complete):
        return []
    return [k.experiment_id for k in (trial.best, trial.rival) if k is not None]


def verdict(trial: DimensionTrial, repeated: Repeated) -> TrialVerdict | None:
    """How a trial ends; None while it waits for results or repeats."""
    if not trial.is_due:
        return None
    counts = f"{trial.varied} of {len(trial.counted)} results varied it"
    if trial.varied < LEAST_VARIED:
        lacks = f"a train.py needs the line {line_of(trial.proposal)!r:.100}"
        return TrialVerdict(False, f"only {counts}: {lacks}", trial.varied, None)
    if trial.is_open and not trial.is_complete:
        return None
    first = trial.first_gain
    if trial.best is None or first is None:
        return TrialVerdict(False, f"{counts}, and none improved the best", trial.varied, None)
    names = runs_to_repeat(trial)
    if not names:
        # no repeats: none would help, or the tag's policy makes none
        return TrialVerdict(_is_enough(first), f"{counts}; {_gain_text(first)}", trial.varied, first)
    if not all(is_repeated(repeated.get(name)) for name in names):
        return None
    measured = trial.gain(repeated)
    if measured is None:
        return TrialVerdict(
            False, f"{counts}; {_gain_text(first)}, but could not be run again", trial.varied, first
        )
    gain, chance = measured
    is_enough, is_sure = _is_enough(gain), chance >= SURE
    luck = ", which may be chance" if is_enough and not is_sure else ""
    runs = len(repeat_values(repeated, trial.best))
    reason = f"{counts}; run again {runs} times, {_gain_text(gain)}{luck}"
    return TrialVerdict(is_enough and is_sure, reason, trial.varied, gain)


def needs_repeat(run: RetestFacts) -> bool:
    """Whether another repeat of this run should begin."""
    e = run.experiment
    fresh, under_way = len(fresh_runs(e, run.retests)), sum(r.status in OPEN for r in run.retests)
    is_vain = len(run.retests) - fresh - under_way > SPARE
    return e.can_run_again and not is_vain and fresh + under_way < REPEATS


def is_repeated(run: RetestFacts | None) -> bool:
    return run is not None and not needs_repeat(run) and not any(r.status in OPEN for r in run.retests)


def repeat_values(repeated: Repeated, of: KeptRun | TriedRun) -> list[float]:
    run = repeated.get(of.experiment_id)
    fresh = [] if run is None else fresh_runs(run.experiment, run.retests)
    return [r.own_value for r in fresh if r.own_value is not None]


def _gain_text(gain: float) -> str:
    if gain <= 0:
        return "the best of them does not beat the best without it"
    only = "" if _is_enough(gain) else " only"
    return f"the best of them beats the best without it by {gain:.4g}{only}"


def _is_enough(gain: float) -> bool:
    return gain >= LEAST_GAIN - TOLERANCE
