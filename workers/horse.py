"""The process of one attempt (RQ: work horse): opens the lab and calls gpu::train."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from functions.process.lifecycle import opened
from functions.process.logs import bound, start_logging
from functions.table import table
from state.client import Lab
from state.experiments import Experiments
from state.moves import load, moves
from state.settings import Settings
from workers.attempt.runner import TrainingRunner
from workers.device import HealthSampler
from workers.slot import Slot


def preload() -> None:
    """Import modules and build models before the fork, so that attempts need not."""
    table()
    for model in _below(BaseModel):
        model.model_rebuild()
    for name in moves():
        load(name)
    importlib.import_module("scipy.special")  # needed by tags that judge noise
    importlib.import_module("cryptography.hazmat.primitives.asymmetric.ed25519")  # jobs are signed


async def attempt(
    function: str, payload: Mapping[str, Any], slot: Slot, settings: Settings
) -> dict[str, Any]:
    """Call the function in the lane `gpu` of this slot and return its response."""
    start_logging(settings, "runner")

    def runner(lab: Lab) -> TrainingRunner:
        return TrainingRunner(slot, settings, lab_identity=lab.identity, sampler=sampler, alone=True)

    async with (
        HealthSampler() as sampler,
        opened("runner", settings, worker=True, runner=runner) as process,
    ):
        e = await Experiments(process.lab).get(str(payload["experiment_id"]))
        call = process.invoker.system(f"worker:{slot.gpu_id}", "queue", e.traceparent)
        with bound(gpu_id=slot.gpu_id, tag=e.tag):
            return (await process.invoker.call(function, payload, call)).model_dump()


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in model.__subclasses__():
        yield each
        yield from _below(each)
