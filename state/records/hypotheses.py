"""A hypothesis: a claim about a swarm's dimensions that results support or refute, with what is believed of it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from state.records.base import Record
from state.records.swarms import Value

HypothesisKind = Literal["positive", "comparative", "interaction", "null"]
HypothesisStatus = Literal["active", "supported", "refuted"]
Verdict = Literal["supported", "refuted", "irrelevant"]
HypothesisSource = Literal["default", "llm_proposed", "operator"]


class Evidence(Record):
    """Evidence of one run about a hypothesis."""

    experiment_id: str
    outcome: float | None
    """1: a win, 0: a loss; between them for a run that was stopped early; None: it decided nothing, for a tie."""
    against: Literal["reference", "baseline", "crash", "stopped", "test"]
    """Base of the comparison: a run of the reference config, the worker's baseline, the end of the run, or a whole
    test."""
    is_guarded: bool = True
    """It enters the e-values: neither a choice of the swarm nor a baseline makes it a win."""
    worker_id: str | None = None
    delta: float | None = None
    """Judged value less the worker's baseline; below 0 is better. None: the run has no value."""
    reference_id: str | None = None
    reference_worker_id: str | None = None
    contrast: float | None = None
    """Judged value less that of the reference run, in the direction of the metric: below 0 is better."""


class HypothesisClaim(Record):
    """Statement and test of a hypothesis."""

    hypothesis_id: str
    tag: str
    statement: str
    kind: HypothesisKind = "positive"
    importance: float = 0.5
    """Importance, 0 to 1."""
    config_constraint: dict[str, Any] = Field(default_factory=dict)
    """Values that its runs have in some dimensions: a value, a list of values, or {"min": ..., "max": ...}."""
    dimensions: list[str] = Field(default_factory=list)
    """Dimensions that it is about. Its runs vary these; a run that is compared with a reference run varies nothing
    else."""
    test_spec: dict[str, Any] | None = None
    parent_id: str | None = None
    source: HypothesisSource = "default"
    rationale: str | None = None
    created_at: float
    phase: Literal["exploration", "validation"] = "exploration"
    reference_config: dict[str, Value] = Field(default_factory=dict)
    """Frozen: what its reference runs have in every dimension."""


class Hypothesis(HypothesisClaim):
    """A claim, and the belief in it: theta, the share of its runs that win, is Beta(alpha, beta)."""

    status: HypothesisStatus = "active"
    settled: Verdict | None = None
    """Verdict by e-values or a test. Refuted and irrelevant hypotheses have no workers."""
    settled_at: float | None = None
    alpha: float = 2.0
    beta: float = 2.0
    n_experiments: int = 0
    """Outcomes that moved the belief; runs of the reference config are none."""
    wins: int = 0
    """Wins that enter the e-values."""
    losses: int = 0
    stopped: int = 0
    """Fractional outcomes of runs that were stopped early; each e-value counts them against its claim."""
    effects: int = 0
    """Runs with a delta."""
    effect_mu: float = 0.0
    """Mean of the runs' delta_bpb (below 0 is better)."""
    effect_m2: float = 0.0
    """Sum of squared differences from that mean (Welford)."""
    contrasts: int = 0
    """Pairs of a run and a reference run."""
    contrast_mu: float = 0.0
    """Mean of the pairs' contrasts."""
    contrast_m2: float = 0.0
    """Sum of squared differences from that mean."""
    outside: int = 0
    """Runs with a delta that varied its dimensions, but not inside the constraint."""
    outside_mu: float = 0.0
    """Mean of their delta_bpb."""
    outside_m2: float = 0.0
    """Sum of squared differences from that mean."""
    lacking: dict[str, float] = Field(default_factory=dict)
    """Evidence of irrelevance that each section of its range lacks. Its runs are drawn in proportion to this."""
    uncertain_streak: int = 0
    """Number of results in a row with P within 0.45 to 0.55."""
    sprint_left: int = 0
    """Results of its decision sprint that are to come."""
    sprinted_at: int | None = None
    """n_experiments as its newest sprint began."""
    sprints: int = 0
    allocation_penalty: float = 1.0
    evidence: list[Evidence] = Field(default_factory=list)
    """The newest."""

    @property
    def probability(self) -> float:
        """P, the posterior mean of theta."""
        return self.alpha / (self.alpha + self.beta)
