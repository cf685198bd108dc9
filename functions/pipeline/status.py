"""pipeline::status shows the state of a swarm's pipeline."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm
from functions.pipeline._terms import terms_in
from functions.rules.pipeline.stepping import hit_rate, may_deploy
from state.pipelines import Pipelines
from state.settings import Settings


class ReadPipeline(OfSwarm):
    """No field but the tag."""


class DeploymentThresholds(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    confidence: float
    """Least confidence of a draft that workers follow before it is confirmed."""
    deployment_confidence: float
    """Least trust in drafts for that."""


class PipelineStatus(Response):
    enabled: bool
    auto_deploy: bool
    deploy_allowed: bool
    """Workers may follow the draft now."""
    deployment_confidence: float
    """Trust in drafts, 0 to 1. A confirmed draft adds 0.08, a flushed one takes 0.20."""
    thresholds: DeploymentThresholds
    batch_id: int
    """Number of ended batches."""
    ticks_this_batch: int
    """Progress reports at a tenth and each fifth of a run."""
    spec_state: str | None
    """drafting, ready or confirmed; null: there is no draft."""
    spec_id: str | None
    confidence: float | None
    """Share of the resamples with the draft's predicted decision; null: there is no draft."""
    last_flush_token: str | None
    flush_count: int
    confirmed_count: int
    hit_rate: float | None
    """Share of the drafts that were confirmed; null: none was confirmed or flushed."""


@function("pipeline::status", Http("GET", "/pipeline/status"), role=("viewer", "worker"), is_public=True)
async def status(request: ReadPipeline, pipelines: Pipelines, settings: Settings) -> PipelineStatus:
    """The state of a swarm's pipeline, and whether workers may follow its draft now."""
    terms = terms_in(settings)
    stand = await pipelines.stand(request.tag_in(settings))
    p = stand.pipeline
    return PipelineStatus(
        enabled=terms.enabled,
        auto_deploy=terms.auto_deploy,
        deploy_allowed=may_deploy(p, terms),
        deployment_confidence=p.bank,
        thresholds=DeploymentThresholds(
            confidence=terms.least_confidence, deployment_confidence=terms.least_bank
        ),
        batch_id=p.batch_id,
        ticks_this_batch=stand.ticks - p.ticks_before,
        spec_state=p.draft.state if p.draft else None,
        spec_id=p.draft.spec_id if p.draft else None,
        confidence=p.draft.confidence if p.draft else None,
        last_flush_token=p.last_flush_token,
        flush_count=p.flush_count,
        confirmed_count=p.confirmed_count,
        hit_rate=hit_rate(p),
    )
