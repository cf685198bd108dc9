"""experiment::near_misses lists the discarded experiments that came close to the current best."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Request, Response, function
from functions.rules.keeps.noise import near_scores
from functions.rules.keeps.verdict import score
from state.experiments import Experiments
from state.ids import Tag


class ListNearMisses(Request):
    tag: Tag
    limit: int = Field(20, ge=1, le=500, description="most near misses that are answered")


class NearMiss(Response):
    experiment_id: str
    id: str
    """`experiment_id` once more."""
    val_bpb: float
    delta: float
    """How much worse it is than the current best, the least first; below 0 for one that was demoted."""
    hypothesis: str
    category: str
    diff_summary: str


class NearMisses(Response):
    near_misses: list[NearMiss]
    total: int


@function("experiment::near_misses", role="viewer")
async def near_misses(request: ListNearMisses, experiments: Experiments) -> NearMisses:
    """Discarded experiments within the policy's margin of the best as it is now."""
    facts = await experiments.near_facts(request.tag, request.limit, near_scores)
    return NearMisses(
        near_misses=[
            NearMiss(
                experiment_id=e.experiment_id,
                id=e.experiment_id,
                val_bpb=e.val_bpb,
                delta=score(e.judged, facts.direction) - score(facts.best, facts.direction),
                hypothesis=e.hypothesis,
                category=e.category,
                diff_summary=e.diff_summary,
            )
            for e in facts.found
            if e.val_bpb is not None and e.judged is not None and facts.best is not None
        ],
        total=facts.total,
    )
