"""hypothesis::history shows how the belief in a hypothesis moved."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from functions.contract import Response, function
from functions.hypothesis.get import ReadHypothesis
from functions.rules.beliefs.trajectory import PosteriorPoint, trajectory
from functions.views.hypotheses import EvidenceView, evidence_view
from state.hypotheses import Hypotheses
from state.settings import Settings


class BeliefStep(BaseModel):
    """One piece of evidence, and the belief after it."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    evidence: EvidenceView
    at: float | None
    """When it was learned, in seconds since 1970; null: its run is not there any more."""
    after: PosteriorPoint


class Trajectory(Response):
    hypothesis_id: str
    n: int
    """Outcomes that moved the belief so far."""
    start: PosteriorPoint
    """Belief before the first step. Its `n` is above 0 where older evidence is not kept."""
    steps: list[BeliefStep]
    """The newest 50 pieces of evidence at most, oldest first."""


@function("hypothesis::history", role="viewer")
async def history(request: ReadHypothesis, hypotheses: Hypotheses, settings: Settings) -> Trajectory:
    """The belief in a hypothesis after each piece of its newest evidence, with the 90 % interval."""
    found = await hypotheses.get(request.tag_in(settings), request.hypothesis_id)
    times = await hypotheses.learned_at(found.evidence)
    start, steps = trajectory(found)
    return Trajectory(
        hypothesis_id=found.hypothesis_id,
        n=found.n_experiments,
        start=start,
        steps=[
            BeliefStep(evidence=evidence_view(said), at=at, after=point)
            for (said, point), at in zip(steps, times, strict=True)
        ],
    )
