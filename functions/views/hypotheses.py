"""Hypotheses and their evidence as answers show them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from functions.rules.beliefs.learning import EffectSizes, effect
from functions.rules.beliefs.posterior import posterior_of
from functions.rules.search.suggestions import short
from state.records import Evidence, Hypothesis, stamp


class HypothesisView(BaseModel):
    """A claim with the belief in it."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    hypothesis_id: str
    statement: str
    type: str
    status: str
    phase: str
    settled: str | None
    """A verdict, which is valid however often results are looked at; null: none yet."""
    posterior_mean: float
    """P, the posterior mean of the share of its runs that win."""
    credible_interval_90: tuple[float, float]
    support_probability: float
    """Probability that this share is above 0.60."""
    refute_probability: float
    """Probability that it is below 0.40."""
    rope_probability: float
    alpha: float
    beta: float
    n_experiments: int
    effect_mu: float | None
    """Mean delta of its runs to their workers' baselines, below 0 is better; null: no run has one."""
    effect_sem: float | None
    contrast_mu: float | None
    """Mean difference of its runs to their reference runs."""
    contrast_sem: float | None
    inside_mu: float | None
    """Mean delta of its runs less that of runs outside its constraint; null: one of both is missing."""
    inside_sem: float | None
    importance: float
    dimensions: list[str]
    config_constraint: dict[str, Any]
    test_spec: dict[str, Any] | None
    parent_id: str | None
    source: str
    rationale: str | None
    created_at: str


_COPIED = HypothesisView.model_fields.keys() & Hypothesis.model_fields.keys() - {
    "created_at",
    *EffectSizes.__dataclass_fields__,
}


def hypothesis_view(h: Hypothesis) -> HypothesisView:
    return HypothesisView(
        **h.model_dump(include=_COPIED),
        **vars(posterior_of(h.alpha, h.beta)),
        **vars(effect(h)),
        type=h.kind,
        created_at=stamp(h.created_at),
    )


class Belief(BaseModel):
    """A hypothesis in one line, for an agent's brief."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    hypothesis_id: str
    statement: str
    status: str
    posterior_mean: float
    """P, the posterior mean of the share of its runs that win."""
    n_experiments: int


def belief_of(h: Hypothesis) -> Belief:
    return Belief(
        hypothesis_id=h.hypothesis_id,
        statement=short(h.statement, 200),
        status=h.settled or h.status,
        posterior_mean=round(posterior_of(h.alpha, h.beta).posterior_mean, 3),
        n_experiments=h.n_experiments,
    )


class EvidenceView(BaseModel):
    """The evidence of one run."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    experiment_id: str
    outcome: float | None
    """1: a win, 0: a loss, between 0 and 1: stopped early, null: a tie."""
    against: str
    """reference, baseline, crash, stopped or test."""
    reference_id: str | None
    delta: float | None
    contrast: float | None


def evidence_view(e: Evidence) -> EvidenceView:
    return EvidenceView(**e.model_dump(include=set(EvidenceView.model_fields)))
