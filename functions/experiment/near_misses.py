"""experiment::near_misses lists the discarded experiments that came close to the current best."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Request, Response, function
from functions.rules.keeps.verdict import near_band, score
from state.experiments import Experiments
from state.ids import Tag
from state.policies import Policies
from state.tags import Tags


class Ask(Request):
    tag: Tag
    limit: int = Field(20, ge=1, le=500)


class NearMiss(Response):
    experiment_id: str
    val_bpb: float
    delta: float
    """By how much it is worse than the current best, the least first; below 0 for one that was demoted."""
    hypothesis: str
    category: str
    diff_summary: str


class NearMisses(Response):
    near_misses: list[NearMiss]
    total: int


@function("experiment::near_misses", role="viewer")
async def near_misses(request: Ask, tags: Tags, policies: Policies, experiments: Experiments) -> NearMisses:
    """Discarded experiments within the policy's margin of the best as it is now."""
    tag = await tags.get(request.tag)
    best = await experiments.best(request.tag)
    if best is None:
        return NearMisses(near_misses=[], total=0)
    policy, _ = await policies.get(request.tag)
    low, high = near_band(best.val_bpb, tag.direction, policy.near_miss_margin)
    found, total = await experiments.near_misses(request.tag, low, high, request.limit)
    return NearMisses(
        near_misses=[
            NearMiss(
                experiment_id=e.experiment_id,
                val_bpb=e.val_bpb,
                delta=score(e.val_bpb, tag.direction) - score(best.val_bpb, tag.direction),
                hypothesis=e.hypothesis,
                category=e.category,
                diff_summary=e.diff_summary,
            )
            for e in found
            if e.val_bpb is not None
        ],
        total=total,
    )
