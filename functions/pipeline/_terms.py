"""The lab's settings for pipelines, as the rules take them."""

from __future__ import annotations

from functions.rules.pipeline.stepping import PipelineTerms
from state.settings import Settings

DRAFT_AFTER = 10
"""Progress reports of a batch, at a tenth and each fifth of a run, after which its draft begins."""
OLDEST_S = 600.0
"""Seconds after which the draft of an unfinished batch is dropped."""


def terms_in(settings: Settings) -> PipelineTerms:
    """Settings of every pipeline of the lab."""
    return PipelineTerms(
        enabled=settings.pipeline_enabled,
        auto_deploy=settings.pipeline_auto_deploy,
        batch_every=settings.pipeline_batch_every,
        draft_after=DRAFT_AFTER,
        oldest_s=OLDEST_S,
        least_confidence=settings.pipeline_least_confidence,
        least_bank=settings.pipeline_least_bank,
    )
