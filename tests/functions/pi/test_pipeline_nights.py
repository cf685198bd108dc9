"""Nights of simulated swarms with a pipeline: how drafts fare, and that no restart changes that."""

from __future__ import annotations

import pytest

from bench._batches import Batches
from bench.pipeline import TERMS
from functions.kernel.process.lifecycle import Process
from state.program_facts import PipelineState, PipelineStep
from state.programs import Choose, Pipelines
from state.records import Pipeline

FEW = 6
"""Resamples of each prediction: the night is not to take minutes."""


@pytest.fixture(scope="module")
def night() -> Batches:
    """The first 160 runs of a night."""
    found = Batches(1, workers=30, terms=TERMS, resamples=FEW)
    found.go_on(160)
    return found


def the(step: PipelineStep) -> Choose:
    """Chooses this step, which was decided on the pipeline as it is now."""

    async def choose(stand: PipelineState) -> PipelineStep:
        assert stand.pipeline == step.before
        return step

    return choose


async def test_a_night_that_restarts_after_every_step_is_the_same(process: Process, night: Batches) -> None:
    for step in night.pipe.steps:
        assert await Pipelines(process.lab).take("night", the(step))
    kept, _ = await Pipelines(process.lab).read("night")
    assert kept == night.pipe.pipeline != Pipeline()
    assert {step.kind for step in night.pipe.steps} >= {"drafting", "ready", "confirmed", "batch"}
