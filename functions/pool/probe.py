"""pool::probe runs a tag's baseline on a GPU on which runs crash one after the other."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from functions.contract import Command, On, Response, function
from functions.pool._stores import Stores
from functions.rules.keeps.ruling import retest_of
from functions.rules.pool.breaker import Breaker, is_probe
from functions.rules.pool.lending import may_run
from state.errors import BudgetExhausted
from state.ids import ExperimentId, GpuId, named_by
from state.records import OPEN, Experiment, Gpu
from state.settings import Settings

log = logging.getLogger(__name__)


class Probe(Command):
    experiment_id: ExperimentId = Field(description="what has ended there")
    gpu_id: GpuId | None = Field(None, description="without one there is nothing to look at")


class Probing(Response):
    retest_id: str | None
    """The run of the baseline that was begun; null where none is wanted."""


@function("pool::probe", On("experiment.finished"), role="operator", writes=True)
async def probe(request: Probe, stores: Stores, settings: Settings) -> Probing:
    """Run a tag's baseline on a GPU with crashes in a row, to test the GPU; safe to run twice."""
    _, tag = named_by(request.experiment_id)
    breaker = Breaker(settings.cooldown_s)
    while True:
        gpu = await stores.pool.find(request.gpu_id) if request.gpu_id else None
        if gpu is None or not breaker.wants_probe(gpu):
            return Probing(retest_id=None)
        baseline_id = (await stores.tags.get(tag)).baseline_id
        if baseline_id is None:
            return Probing(retest_id=None)
        facts = await stores.experiments.retest_facts(baseline_id)
        if not _can_tell(facts.experiment, gpu) or _is_under_way(facts.retests, gpu):
            return Probing(retest_id=None)
        retest = retest_of(facts.experiment, facts.retests, facts.policy)
        try:
            begun = await stores.experiments.begin_retest(replace(retest, pinned_gpu=gpu.gpu_id))
        except BudgetExhausted as problem:
            log.warning("%s is not probed by %s: %s", gpu.gpu_id, baseline_id, problem.detail)
            return Probing(retest_id=None)
        if begun is not None:
            return Probing(retest_id=begun.experiment_id)


def _can_tell(baseline: Experiment, gpu: Gpu) -> bool:
    """Whether a run of the baseline on this GPU would test it, and the lab lends it."""
    same_class = may_run(baseline.model_copy(update={"retest_of": baseline.experiment_id}), gpu)
    return is_probe(baseline) and same_class and gpu.owner is None


def _is_under_way(retests: Sequence[Experiment], gpu: Gpu) -> bool:
    return any(r.status in OPEN and r.pinned_gpu == gpu.gpu_id for r in retests)
