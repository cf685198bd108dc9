"""Nights of simulated swarms with a pipeline: how drafts fare, and that no restart changes that."""

from __future__ import annotations

import pytest

from bench._batches import Batches
from bench.pipeline import TERMS, fared
from functions.kernel.process.lifecycle import Process
from functions.pi.rules.stepping import flushed
from state.pipeline_facts import PipelineState, PipelineStep
from state.pipelines import Choose, Pipelines
from state.records import Pipeline

FEW = 6
"""Resamples of each prediction: the night is not to take minutes."""


def test_a_swarm_whose_truth_stays_has_most_drafts_confirmed() -> None:
    night = Batches(2, workers=30, terms=TERMS, resamples=FEW)
    night.go_on(240)

    own, unchanging = fared(night.pipe), fared(night.unchanging)
    assert own.hit_rate >= 0.8
    assert own.hit_rate >= unchanging.hit_rate
    assert own.lag <= 0.25


def test_a_truth_that_flips_flushes_drafts_stops_deployment_and_lets_trust_come_back() -> None:
    night = Batches(7, workers=30, terms=TERMS, has_rivals=True, resamples=FEW)
    night.go_on(120)
    before = night.pipe.pipeline
    night.flip()
    night.go_on(380)
    after = night.pipe.pipeline

    lowest = min(b.bank for b in night.pipe.batches if b.results > 120)
    assert before.bank >= TERMS.least_bank
    assert after.flush_count > before.flush_count
    assert fared(night.pipe).flushed["outlier"] > 0
    assert lowest < TERMS.least_bank <= after.bank


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


async def test_a_night_that_restarts_after_every_step_is_the_same_night(
    process: Process, night: Batches
) -> None:
    for step in night.pipe.steps:
        assert await Pipelines(process.lab).take("night", the(step))

    kept, _ = await Pipelines(process.lab).read("night")
    assert kept == night.pipe.pipeline != Pipeline()
    assert {step.kind for step in night.pipe.steps} >= {"drafting", "ready", "confirmed", "batch"}


@pytest.mark.parametrize("kind", ["ready", "confirmed"])
async def test_a_draft_s_text_is_kept_with_it_and_goes_with_it(
    process: Process, night: Batches, kind: str
) -> None:
    store = Pipelines(process.lab)

    for step in night.pipe.steps:
        assert await store.take("night", the(step))
        if step.kind == kind:
            break

    assert (await Pipelines(process.lab).read("night"))[1] == "a program"
    stand = await store.stand("night")
    assert await store.take("night", the(flushed(stand.pipeline, stand, "operator")))
    assert (await store.read("night"))[1] is None
