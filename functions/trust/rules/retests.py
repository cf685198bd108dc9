"""Retests: their seeds, and the next step for an incumbent, the keeps on top of it and their rivals."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import TypeVar

from functions.experiments.rules.keeping import SeedScores, borne_out, is_confirmed, is_hopeless, winner
from functions.trust.rules.noise import Repeats, is_outlier
from functions.trust.rules.overruns import ALL_OVER
from state.facts import Noise
from state.records import OneRun, Seeds, Trust

# -- The next step for an incumbent, the keeps on top of it and their rivals, given the retests so far.

AnyRun = TypeVar("AnyRun", bound=OneRun)

SEED_STEP = 104_729
"""Distance of the fixed seeds: a prime, so that no script's own seed is among them."""
SPARE = 2
"""Retests beyond those owed that may begin, because workers get lost or stopped."""
PASSED = "the further runs of the keep under it are better than it"
"""Reason of a demotion when the keep under it is confirmed."""
NO_FAULT = frozenset({"infra", "killed", "disk", "constant"})
"""Kinds of crash for which the code is not to blame."""


@dataclass(frozen=True)
class Contender:
    """An experiment with its retests."""

    trial: SeedScores
    """Scores, lower is better; the fresh ones in the order of their seeds."""
    trust: Trust | None
    started: int = 0
    """Retests begun."""
    under_way: int = 0
    """Retests that are not over."""
    broke: bool = False
    """A retest crashed by the code's own fault."""
    trainable: bool = True
    """A worker trained it, so a worker can repeat it."""
    is_baseline: bool = False
    """The tag's first keep."""
    overran: bool = False
    """A retest was over its budget."""

    @property
    def name(self) -> str:
        return self.trial.name

    @property
    def is_tested(self) -> bool:
        """Its retests are over, and at least one is usable."""
        return not self.under_way and (self.broke or bool(self.trial.fresh))

    @property
    def bears_out(self) -> bool:
        """Its further seeds have values that do not contradict the first, and no crash."""
        return bool(self.trial.fresh) and not self.broke and not self.trial.contradicted

    @property
    def worth(self) -> float:
        """Its score once it is confirmed: the first run's, or the mean of the others if they contradict it."""
        return self.trial.first if self.trial.further is None else self.trial.further

    def falls_behind(self, under: Contender) -> bool:
        """Its first run was contradicted, and its further runs are no better than the keep under it."""
        return self.trial.contradicted and self.worth >= under.trial.first


@dataclass(frozen=True)
class Effort:
    """Limits on retests."""

    baseline_repeats: int
    """Retests of a baseline, from which the noise is estimated."""
    max_retests: int
    """0: nothing is repeated. Otherwise all other code is repeated once."""
    may_run: bool = True
    """Whether the budget allows another run."""


@dataclass(frozen=True)
class RunAgain:
    name: str


@dataclass(frozen=True)
class Confirm:
    """The keep becomes the incumbent; older keeps leave the chain."""

    name: str


@dataclass(frozen=True)
class Demote:
    """The keep becomes a discard."""

    name: str
    reason: str | None = None
    """Reason, unless its own further runs decided."""
    is_hidden: bool = False
    """Whether the hidden split of its tag decided."""


@dataclass(frozen=True)
class GiveUp:
    """Neither the keep nor a keep under it can be repeated: it stays, unconfirmed."""

    name: str


@dataclass(frozen=True)
class Promote:
    """The rival, a discard so far, becomes the incumbent."""

    name: str


@dataclass(frozen=True)
class Dismiss:
    """No rival is better than the incumbent."""


@dataclass(frozen=True)
class Revalue:
    """The incumbent's further runs contradict the first: it gets their mean as its value, and may fall."""

    name: str


Step = RunAgain | Confirm | Demote | GiveUp | Promote | Dismiss | Revalue


def fresh_runs(e: OneRun, retests: Sequence[AnyRun]) -> list[AnyRun]:
    """Retests that are evidence, without the run that measured a claim."""
    return [r for r in retests if r.is_evidence and r.experiment_id != e.measured_by]


def next_seed(own: int | None, used: Collection[int | None]) -> int:
    """The first fixed seed that is neither the experiment's own nor `used`.

    All experiments take the seeds in the same order, so that they share seeds. The seed of a lost run is taken again.
    """
    return next(seed for n in count(1) if (seed := SEED_STEP * n) != own and seed not in used)


def due_step(
    chain: Sequence[Contender],
    rivals: Sequence[Contender],
    sigma: float | None,
    effort: Effort,
    shift: float | None = None,
) -> Step | None:
    """One step towards a confirmed incumbent; None: there is nothing to do, or a retest is awaited.

    `chain` is the incumbent and every keep on top of it, oldest first. `rivals` are discards that beat the incumbent,
    best first. They are repeated only when no keep is on top of it: earlier costs more runs than it gains
    (bench/keeps.py). `sigma` is that of runs on one seed, and `shift` the effect of the second seed (`learned`).
    """
    if chain[0].trust == "provisional":  # the keep under it was retracted
        return _confirmation(chain, effort)
    if len(chain) == 1 and chain[0].trial.contradicted:
        return Revalue(chain[0].name)
    if shift is not None and (hopeless := _hopeless(chain, shift)) is not None:
        return Demote(hopeless.name)
    racing = list(rivals) if len(chain) == 1 else []
    if len(chain) == 1 and (raced := [r for r in racing if r.is_tested]):
        step = _step_of_rivals(chain[0], raced, sigma)
        if isinstance(step, Promote):
            return step  # no other run is needed for it
    if not effort.may_run:
        step = _step_of_chain(chain, sigma, effort) if len(chain) > 1 else None
        return step if isinstance(step, Confirm | Demote) else None
    for contender, owed in _owed(chain, racing, effort):
        if not contender.broke and contender.trainable:
            there = len(contender.trial.fresh) + contender.under_way
            if there < owed and contender.started < owed + SPARE:
                return RunAgain(contender.name)
    if len(chain) > 1:
        return _step_of_chain(chain, sigma, effort)
    if not rivals:
        return None
    step = _step_of_rivals(chain[0], racing, sigma)
    awaits_agent = any(not each.trainable and not each.is_tested for each in (chain[0], *racing))
    return None if isinstance(step, Dismiss) and awaits_agent else step


def _hopeless(chain: Sequence[Contender], shift: float) -> Contender | None:
    """The oldest provisional keep whose first run is already too weak to win a retest."""
    for place, c in enumerate(chain[1:], 1):
        if c.trust == "provisional" and not c.trial.fresh and not c.under_way:
            against = next((u for u in chain[place - 1 :: -1] if u.trial.fresh and not u.broke), None)
            if against is not None and is_hopeless(c.trial.first, borne_out(against.trial, shift)):
                return c
    return None


def _owed(
    chain: Sequence[Contender], racing: Sequence[Contender], effort: Effort
) -> list[tuple[Contender, int]]:
    """Number of retests that each contender needs, most urgent first."""
    # with two runs each, races cost twice as much and a night gains a tenth less (bench/keeps.py)
    each = min(1, effort.max_retests)
    owed: list[tuple[Contender, int]] = []
    for under, c in pairwise(chain):
        if c.trust == "provisional":
            owed += [(c, each), (under, each)]
    if chain[0].is_baseline:
        owed.append((chain[0], effort.baseline_repeats * each))
    owed += [(rival, each) for rival in racing]
    if racing:
        owed.append((chain[0], each))
    return owed


def _step_of_chain(chain: Sequence[Contender], sigma: float | None, effort: Effort) -> Step | None:
    """Judge the oldest keep that can be judged against the nearest tested keep under it."""
    for place, c in enumerate(chain[1:], 1):
        if c.broke or c.falls_behind(chain[place - 1]):
            return Demote(c.name)
        if c.trust in ("confirmed", "first", None):  # None: a keep under the strict rule
            return _confirmation(chain[place:], effort)
        under = chain[place - 1 :: -1]
        if any(each.under_way for each in (c, *under)):
            return None
        against = next((u for u in under if u.is_tested), None)
        if against is None or not c.is_tested:
            if c.trust == "provisional":
                return Demote(c.name, ALL_OVER) if c.overran and not c.is_tested else GiveUp(c.name)
            continue
        is_ahead = against.broke or is_confirmed(c.trial, against.trial, sigma)
        return _confirmation(chain[place:], effort) if is_ahead else Demote(c.name)
    return None


def _confirmation(chain: Sequence[Contender], effort: Effort) -> Step | None:
    """Confirm the first of these keeps, after the keeps on top of it that are no better than its further runs fell.

    A keep on top that has no retest of its own is repeated first. None while that runs, or waits for a budget.
    """
    first, *others = chain
    for c in others:
        if not first.trial.contradicted or c.trial.first < first.worth:
            continue
        if c.worth >= first.worth:
            return Demote(c.name, PASSED)
        if c.under_way:
            return None
        if c.trust in ("provisional", "unconfirmed") and not c.is_tested:
            runs_again = c.trainable and c.started <= SPARE and effort.max_retests > 0
            if runs_again:
                return RunAgain(c.name) if effort.may_run else None
            return Demote(c.name, PASSED)
    return Confirm(first.name)


def _step_of_rivals(incumbent: Contender, racing: Sequence[Contender], sigma: float | None) -> Step | None:
    """Promote a rival in the place of an incumbent without keeps on top, or dismiss the rivals."""
    if incumbent.under_way or any(r.under_way for r in racing):
        return None
    tested = [r.trial for r in racing if r.bears_out]
    if incumbent.broke and tested:
        return Promote(min(tested, key=lambda t: t.claimed).name)
    if not incumbent.trial.fresh:
        return Dismiss()
    wins = winner(tested, incumbent.trial, sigma)
    return Promote(wins.name) if wins else Dismiss()


# -- The effect of a seed on every run, learned from code that ran on two seeds, and the noise without that effect.

ENOUGH_KEPT = 2
"""Kept pairs, the baseline's included, that a shift is estimated from. One pair cannot tell seed from noise."""
BORROWED = 2
"""Most degrees of freedom that are borrowed from the noise of all repeats."""


def learned(
    step: Step, chain: Sequence[Contender], rivals: Sequence[Contender], seeds: Seeds, noise: Noise | None
) -> Seeds:
    """`seeds` with the pair of the code that this step judges, and at first with the baseline's pair.

    `noise` is that of all repeats.
    """
    foot = chain[0]
    if not seeds.pairs and foot.is_baseline:
        seeds = with_pair(seeds, foot.trial, noise, is_kept=True)
    if isinstance(step, Confirm | Promote | Demote):
        judged = next(c for c in (*chain, *rivals) if c.name == step.name)
        is_kept = not isinstance(step, Demote)
        if judged is not foot:
            seeds = with_pair(seeds, judged.trial, noise, is_kept=is_kept)
        foot = judged if is_kept else foot
    return with_bar(seeds, foot.trial)


def paired(trial: SeedScores) -> float | None:
    """Score on the second seed minus score on the first; None if one of them is unusable."""
    return trial.fresh[0] - trial.first if trial.fresh and not trial.contradicted else None


def shift_of(seeds: Seeds) -> float | None:
    """Mean difference between the second seed's scores and the first's; None while it is not known.

    Only kept code counts. Demoted code had a lucky first run, which biases the difference.
    """
    return seeds.kept_total / seeds.kept if seeds.kept >= ENOUGH_KEPT else None


def with_pair(seeds: Seeds, trial: SeedScores, noise: Noise | None, *, is_kept: bool) -> Seeds:
    """`seeds` with the pair of one more code, unless its second run is an outlier."""
    pair = paired(trial)
    if pair is None or noise is None:
        return seeds
    usual = trial.first + (shift_of(seeds) or 0.0)
    if is_outlier(Repeats(1, usual, 0.0), trial.fresh[0], noise):
        return seeds
    return seeds.model_copy(
        update={
            "pairs": seeds.pairs + 1,
            "total": seeds.total + pair,
            "squares": seeds.squares + pair * pair,
            "kept": seeds.kept + is_kept,
            "kept_total": seeds.kept_total + (pair if is_kept else 0.0),
        }
    )


def with_bar(seeds: Seeds, incumbent: SeedScores) -> Seeds:
    """`seeds` with the bar that this incumbent's two runs set (`keeping.borne_out`)."""
    shift = shift_of(seeds)
    return seeds.model_copy(update={"bar": None if shift is None else borne_out(incumbent, shift)})


def own_noise(noise: Noise | None, seeds: Seeds) -> Noise | None:
    """Noise of runs on one seed.

    Repeats of one code run on different seeds, so `noise` includes the effect of the seeds. A difference of two codes
    on shared seeds does not. The shift costs one degree of freedom. A few are borrowed from `noise`, so that little
    evidence changes little. There are never more than `noise` has.
    """
    shift = shift_of(seeds)
    if noise is None or shift is None or seeds.pairs < ENOUGH_KEPT:
        return noise
    free = seeds.pairs - 1
    # a pair is the difference of two runs, so half of its square belongs to one run
    squares = max(0.0, seeds.squares - 2 * shift * seeds.total + seeds.pairs * shift * shift) / 2
    borrowed = max(0, min(BORROWED, noise.df - free))
    sigma = math.sqrt((squares + borrowed * noise.sigma**2) / (free + borrowed))
    return Noise(sigma, min(free + borrowed, noise.df))
