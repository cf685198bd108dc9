"""A hypothesis after one more run: its posterior, status, verdict and indecision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from functions.beliefs.rules.evidence import is_outside, outcome_of, pairs, part_of
from functions.beliefs.rules.posterior import ENOUGH_E_VALUE, Posterior, e_value, posterior, posterior_of
from functions.beliefs.rules.terms import BeliefTerms, FinishedRun, is_of_influence
from functions.beliefs.rules.whole_range import Blocks, e_values_of, is_irrelevant, lacking, with_run
from state.records import Evidence, Hypothesis
from state.records.hypotheses import HypothesisStatus, Verdict

DECIDED = 0.90
"""Support or refute probability that makes a hypothesis supported or refuted, and ends its penalty."""
ENOUGH_RUNS = 10
"""Outcomes that a status other than active needs."""
VERDICT_RUNS = 12
"""Outcomes that a verdict needs."""
NEWEST = 50
"""Pieces of evidence that are kept."""
UNCERTAIN = (0.45, 0.55)
"""Range of the posterior mean that counts as undecided."""
STREAK = 20
"""Undecided results in a row that count as indecision."""
PENALTY = 0.5
"""Factor on the information value after indecision."""
SPRINT = 12
"""Results of a decision sprint."""
SPRINT_EVERY = 30
"""Least number of results from the beginning of one sprint to the next."""
COUNTS = {"effect": "effects", "contrast": "contrasts", "outside": "outside"}
"""The moments of a hypothesis, with the fields of their counts."""


@dataclass(frozen=True)
class Moments:
    """Count, mean, and sum of squared differences from the mean (Welford, Technometrics 4, 1962)."""

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


class EffectSizes(BaseModel):
    """Effect sizes in the metric's unit, below 0 is better; None: too few runs."""

    model_config = ConfigDict(frozen=True)

    effect_mu: float | None
    """Mean delta of its runs to their workers' baselines, below 0 is better; null: no run has one."""
    effect_sem: float | None
    contrast_mu: float | None
    """Mean difference of its runs to their reference runs."""
    contrast_sem: float | None
    inside_mu: float | None
    """Mean delta of its runs less that of runs outside its constraint; null: one of both is missing."""
    inside_sem: float | None


def effect(hypothesis: Hypothesis) -> EffectSizes:
    """The effect sizes of a hypothesis. P says how often its runs win, the effect how much."""
    inside, contrasts, outside = (_moments(hypothesis, name) for name in COUNTS)
    both = inside.n and outside.n
    return EffectSizes(
        effect_mu=inside.mean if inside.n else None,
        effect_sem=inside.sem,
        contrast_mu=contrasts.mean if contrasts.n else None,
        contrast_sem=contrasts.sem,
        inside_mu=inside.mean - outside.mean if both else None,
        inside_sem=None if inside.sem is None or outside.sem is None else math.hypot(inside.sem, outside.sem),
    )


@dataclass(frozen=True)
class BeliefState:
    """A hypothesis with the runs that are kept for it."""

    hypothesis: Hypothesis
    waiting: Sequence[FinishedRun] = ()
    """Runs that wait for a reference run, oldest first. Of a hypothesis under test: the runs of its test."""
    unused: Sequence[FinishedRun] = ()
    """Reference runs that no run was compared with, oldest first."""
    used: Sequence[str] = ()
    """Ids of the other reference runs, in the order of their use."""
    blocks: Blocks = field(default_factory=dict)
    """Its runs and reference runs by worker and part of the range."""
    own: Evidence | None = None
    """The evidence of the newest run itself."""


def after_run(run: FinishedRun, before: BeliefState, terms: BeliefTerms, now: float) -> BeliefState:
    """A hypothesis after a run, with all pairs that the run makes possible; `unused` holds a new reference run."""
    h, blocks = before.hypothesis, before.blocks
    part, own = part_of(run, h, terms), None
    waiting, unused, used = list(before.waiting), list(before.unused), list(before.used)
    if part == "counts" and (own := outcome_of(run, h, terms)) is not None:
        h = after(h, own, now)
    if is_outside(run, h) and run.judged is not None:
        h = after_outside(h, run.judged)
    if part == "candidate" or any(r.experiment_id == run.experiment_id for r in unused):
        blocks = with_run(blocks, run, h, terms)
    if part == "candidate":
        waiting.append(run)
    needs_noise = is_of_influence(h) and terms.usual_distance is None
    for candidate, reference in [] if needs_noise else pairs(waiting, unused, h):
        waiting.remove(candidate)
        unused.remove(reference)
        used.append(reference.experiment_id)
        if (said := outcome_of(candidate, h, terms, reference)) is not None:
            h = after(h, said, now)
            own = said if candidate is run else own
    if blocks is not before.blocks and h.settled is None:
        e_values = e_values_of(blocks, h, terms)
        h = h.model_copy(update={"lacking": lacking(e_values)})
        if may_be_irrelevant(h) and is_irrelevant(e_values, blocks):
            h = _settled(h, "irrelevant", now)
    return BeliefState(h, waiting, unused, used, blocks, own)


def after(hypothesis: Hypothesis, said: Evidence, now: float) -> Hypothesis:
    """A hypothesis after one more piece of evidence; the posterior does not depend on their order."""
    changes: dict[str, Any] = {
        "evidence": [*hypothesis.evidence, said][-NEWEST:],
        "sprint_left": max(hypothesis.sprint_left - 1, 0),
    }
    if said.delta is not None:
        changes |= _with_value(hypothesis, "effect", said.delta)
    if said.contrast is not None:
        changes |= _with_value(hypothesis, "contrast", said.contrast)
    if said.outcome is not None:
        changes |= _counted(hypothesis, said, said.outcome)
    moved = hypothesis.model_copy(update=changes)
    if said.outcome is not None:
        moved = _judged(moved)
    return _settled(moved, _verdict(moved), now)


def after_test(hypothesis: Hypothesis, said: Evidence, now: float) -> Hypothesis:
    """A hypothesis after its test is complete. The test's own decision rule replaces the e-value."""
    assert said.outcome in (0.0, 1.0)
    verdict: Verdict = "supported" if said.outcome else "refuted"
    changes = _counted(hypothesis, said, said.outcome)
    moved = hypothesis.model_copy(
        update={**changes, "evidence": [*hypothesis.evidence, said][-NEWEST:], "status": verdict}
    )
    return _settled(moved, verdict, now)


def may_be_irrelevant(hypothesis: Hypothesis) -> bool:
    """Whether irrelevance may settle it: it is not settled, and its pairs do not clearly win more often than lose."""
    guarded = posterior_of(2.0 + hypothesis.wins, 2.0 + hypothesis.losses)
    return hypothesis.settled is None and guarded.support_probability < DECIDED


def after_outside(hypothesis: Hypothesis, delta: float) -> Hypothesis:
    """A hypothesis after a run that was no evidence because it did not honour the constraint."""
    return hypothesis.model_copy(update=_with_value(hypothesis, "outside", delta))


def _counted(hypothesis: Hypothesis, said: Evidence, outcome: float) -> dict[str, Any]:
    """The counts of the posterior and of the e-values after an outcome."""
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
    """With its status, and with a penalty and a sprint after indecision."""
    believed = posterior(moved)
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
    """A claim of influence is never refuted: the verdict against it is irrelevance."""
    if moved.n_experiments < ENOUGH_RUNS:
        return "active"
    if believed.support_probability >= DECIDED:
        return "supported"
    is_refuted = believed.refute_probability >= DECIDED and not is_of_influence(moved)
    return "refuted" if is_refuted else "active"


def _verdict(moved: Hypothesis) -> Verdict | None:
    """The verdict that an e-value confirms. Runs that were stopped early count against both verdicts."""
    if moved.n_experiments < VERDICT_RUNS or moved.status == "active":
        return None
    others, own = (moved.wins, moved.losses) if moved.status == "refuted" else (moved.losses, moved.wins)
    return moved.status if e_value(others + moved.stopped, own) >= ENOUGH_E_VALUE else None


def _settled(moved: Hypothesis, verdict: Verdict | None, now: float) -> Hypothesis:
    """With a verdict; a supported claim stays settled until it is refuted."""
    if verdict is None or verdict == moved.settled:
        return moved
    return moved.model_copy(update={"settled": verdict, "settled_at": now})


def _moments(hypothesis: Hypothesis, name: str) -> Moments:
    """The moments that a hypothesis keeps under this name."""
    return Moments(*(getattr(hypothesis, field) for field in (COUNTS[name], f"{name}_mu", f"{name}_m2")))


def _with_value(hypothesis: Hypothesis, name: str, value: float) -> dict[str, Any]:
    """The fields of those moments after one more value."""
    found = _moments(hypothesis, name).with_(value)
    return {COUNTS[name]: found.n, f"{name}_mu": found.mean, f"{name}_m2": found.squares}
