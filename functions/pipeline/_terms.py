"""The lab's settings for pipelines, as the rules take them."""

from __future__ import annotations

from functions.rules.pipeline.stepping import PipelineTerms
from state.settings import Settings


def terms_in(settings: Settings) -> PipelineTerms:
    """Settings of every pipeline of the lab."""
    return PipelineTerms(
        enabled=settings.pipeline_enabled,
        auto_deploy=settings.pipeline_auto_deploy,
        batch_every=settings.pipeline_batch_every,
        least_confidence=settings.pipeline_least_confidence,
        least_bank=settings.pipeline_least_bank,
    )
