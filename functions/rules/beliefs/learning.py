"""What a swarm believes of a hypothesis after one more piece of evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from functions.rules.beliefs.evalues import ENOUGH, e_values
from functions.rules.beliefs.influence import is_of_influence
from functions.rules.beliefs.posterior import Posterior, posterior_of
from state.records import Evidence, Hypothesis
from state.records.hypotheses import HypothesisStatus, Verdict

DECIDED = 0.90
"""Support or refute probability from which a hypothesis is supported or refuted, and no longer penalised."""
ENOUGH_RUNS = 10
"""Outcomes that a status other than active needs."""
VERDICT_RUNS = 12
"""Outcomes that a verdict needs."""
NEWEST = 50
"""Pieces of evidence that are kept."""
UNCERTAIN = (0.45, 0.55)
"""Posterior means between which a hypothesis is undecided."""
STREAK = 20
"""Undecided results in a row that are indecision."""
PENALTY = 0.5
"""What indecision leaves of the information value."""
SPRINT = 12
"""Results of a decision sprint."""
SPRINT_EVERY = 30
"""Results from the beginning of one sprint to that of the next, at least."""


@dataclass(frozen=True)
class Moments:
    """How many values, their mean, and the sum of squared differences from it (Welford, Technometrics 4, 1962)."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def with_(self, value: float) -> Moments:
        n, apart = self.n + 1, value - self.mean
        mean = self.mean + apart / n
        return Moments(n, mean, self.squares + apart * (value - mean))

    @property
    def sem(self) -> float | None:
        """Standard error of the mean; None below two values."""
        return math.sqrt(self.squares / (self.n - 1) / self.n) if self.n > 1 else None


@dataclass(frozen=True)
class Effect:
    """How much a hypothesis' runs win by, in the metric's unit, below 0 is better; None: too few runs."""

    mu: float | None
    """Mean delta to the workers' baselines."""
    sem: float | None
    contrast_mu: float | None
    """Mean difference to the reference runs."""
    contrast_sem: float | None
    inside_mu: float | None
    """Mean delta inside the constraint less that outside of it."""
    inside_sem: float | None


def effect(hypothesis: Hypothesis) -> Effect:
    """The effect sizes of a hypothesis, beside its probability: to win often is not to win much."""
    inside, contrasts, outside = _effects(hypothesis), _contrasts(hypothesis), _outside(hypothesis)
    both = inside.n and outside.n
    errors = None if inside.sem is None or outside.sem is None else math.hypot(inside.sem, outside.sem)
    return Effect(
        mu=inside.mean if inside.n else None,
        sem=inside.sem,
        contrast_mu=contrasts.mean if contrasts.n else None,
        contrast_sem=contrasts.sem,
        inside_mu=inside.mean - outside.mean if both else None,
        inside_sem=errors,
    )


def after(hypothesis: Hypothesis, said: Evidence, now: float) -> Hypothesis:
    """A hypothesis after one more piece of evidence; `now` is Redis' clock.

    Hand in each piece once. The posterior does not depend on their order.
    """
    changes: dict[str, Any] = {
        "evidence": [*hypothesis.evidence, said][-NEWEST:],
        "sprint_left": max(hypothesis.sprint_left - 1, 0),
    }
    if said.delta is not None:
        changes |= _kept("effect", "effects", _effects(hypothesis).with_(said.delta))
    if said.contrast is not None:
        changes |= _kept("contrast", "contrasts", _contrasts(hypothesis).with_(said.contrast))
    if said.outcome is not None:
        changes |= _counted(hypothesis, said, said.outcome)
    moved = hypothesis.model_copy(update=changes)
    if said.outcome is not None:
        moved = _judged(moved)
    return _settled(moved, _verdict(moved), now)


def may_be_irrelevant(hypothesis: Hypothesis) -> bool:
    """Whether irrelevance may settle it: nothing has, and its runs do not clearly win more often than they lose.

    However little they win by; runs beside baselines and stopped ones do not count.
    """
    guarded = posterior_of(2.0 + hypothesis.wins, 2.0 + hypothesis.losses)
    return hypothesis.settled is None and guarded.support_probability < DECIDED


def settled_irrelevant(hypothesis: Hypothesis, now: float) -> Hypothesis:
    """A hypothesis whose dimensions change nothing; see `functions/rules/beliefs/whole_range.py`."""
    return _settled(hypothesis, "irrelevant", now)


def after_outside(hypothesis: Hypothesis, delta: float) -> Hypothesis:
    """A hypothesis after a run that was no evidence, because it did not honour the constraint."""
    return hypothesis.model_copy(update=_kept("outside", "outside", _outside(hypothesis).with_(delta)))


def after_test(hypothesis: Hypothesis, said: Evidence, now: float) -> Hypothesis:
    """A hypothesis after the whole test of its specification: one vote, which ends it, since it can have no second.

    The test's own decision rule stands for the e-value.
    """
    assert said.outcome in (0.0, 1.0)
    verdict: Verdict = "supported" if said.outcome else "refuted"
    changes = _counted(hypothesis, said, said.outcome)
    moved = hypothesis.model_copy(
        update={**changes, "evidence": [*hypothesis.evidence, said][-NEWEST:], "status": verdict}
    )
    return _settled(moved, verdict, now)


def _counted(hypothesis: Hypothesis, said: Evidence, outcome: float) -> dict[str, Any]:
    """An outcome as what it adds to the prior, and to the counts of the e-values."""
    counted: dict[str, Any] = {
        "alpha": hypothesis.alpha + outcome,
        "beta": hypothesis.beta + (1 - outcome),
        "n_experiments": hypothesis.n_experiments + 1,
    }
    if said.is_guarded:
        name = "stopped" if said.against == "stopped" else "wins" if outcome == 1 else "losses"
        counted[name] = getattr(hypothesis, name) + 1
    return counted


def _judged(moved: Hypothesis) -> Hypothesis:
    """Its status, and what its indecision leads to."""
    believed = posterior_of(moved.alpha, moved.beta)
    changes: dict[str, Any] = {"status": _status(moved, believed)}
    low, high = UNCERTAIN
    streak = moved.uncertain_streak + 1 if low <= believed.posterior_mean <= high else 0
    changes["uncertain_streak"] = streak
    if max(believed.support_probability, believed.refute_probability) >= DECIDED:
        changes["allocation_penalty"] = 1.0
    elif streak >= STREAK:
        changes["allocation_penalty"] = PENALTY
        if moved.sprinted_at is None or moved.n_experiments - moved.sprinted_at >= SPRINT_EVERY:
            changes |= {
                "sprint_left": SPRINT,
                "sprinted_at": moved.n_experiments,
                "sprints": moved.sprints + 1,
            }
    return moved.model_copy(update=changes)


def _status(moved: Hypothesis, believed: Posterior) -> HypothesisStatus:
    """A claim of influence is never refuted: it is irrelevant, or nothing is settled."""
    if moved.n_experiments < ENOUGH_RUNS:
        return "active"
    if believed.support_probability >= DECIDED:
        return "supported"
    is_refuted = believed.refute_probability >= DECIDED and not is_of_influence(moved)
    return "refuted" if is_refuted else "active"


def _verdict(moved: Hypothesis) -> Verdict | None:
    """What an e-value bears out, however often it was looked at."""
    worth = e_values(moved.wins, moved.losses, moved.stopped)
    if moved.n_experiments < VERDICT_RUNS:
        return None
    if moved.status == "refuted" and worth.refuted >= ENOUGH:
        return "refuted"
    return "supported" if moved.status == "supported" and worth.supported >= ENOUGH else None


def _settled(moved: Hypothesis, verdict: Verdict | None, now: float) -> Hypothesis:
    """The verdict is kept: a supported claim that becomes uncertain again stays so, until it is refuted as surely."""
    if verdict is None or verdict == moved.settled:
        return moved
    return moved.model_copy(update={"settled": verdict, "settled_at": now})


def _effects(hypothesis: Hypothesis) -> Moments:
    return Moments(hypothesis.effects, hypothesis.effect_mu, hypothesis.effect_m2)


def _contrasts(hypothesis: Hypothesis) -> Moments:
    return Moments(hypothesis.contrasts, hypothesis.contrast_mu, hypothesis.contrast_m2)


def _outside(hypothesis: Hypothesis) -> Moments:
    return Moments(hypothesis.outside, hypothesis.outside_mu, hypothesis.outside_m2)


def _kept(name: str, count: str, moments: Moments) -> dict[str, Any]:
    """Moments as fields of a hypothesis."""
    return {count: moments.n, f"{name}_mu": moments.mean, f"{name}_m2": moments.squares}
