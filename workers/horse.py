"""The process of one attempt (RQ calls it a work horse): opens the lab, calls gpu::train, ends."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from typing import Any

import psutil
from structlog.contextvars import bound_contextvars

from functions.contract import table
from functions.lanes import TrainingJob
from functions.process.lifecycle import opened
from functions.process.logs import start_logging
from state.experiments import Experiments
from state.records import Footprint
from state.settings import Settings
from workers.attempt.runner import TrainingRunner
from workers.device import Sampler
from workers.slot import Slot


def preload() -> None:
    """Import and build, before the fork, what every attempt would otherwise import and build after it."""
    for declared in table().values():
        declared.request.model_rebuild()
        declared.response.model_rebuild()
    importlib.import_module("scipy.special")  # which only tags that know their noise need


async def attempt(function: str, payload: Mapping[str, Any], slot: Slot) -> dict[str, Any]:
    """Call the function in the lane `gpu` of this slot; answers its response."""
    settings = Settings()
    start_logging(settings, "runner")
    async with (
        Sampler() as sampler,
        opened(
            "runner",
            settings,
            lane="gpu",
            worker=True,
            extra=lambda lab: [HorseRunner(slot, settings, lab_identity=lab.identity, sampler=sampler)],
        ) as process,
    ):
        e = await Experiments(process.lab).get(str(payload["experiment_id"]))
        call = process.invoker.system(f"worker:{slot.gpu_id}", "queue", e.traceparent)
        with bound_contextvars(gpu_id=slot.gpu_id, tag=e.tag):
            return (await process.invoker.call(function, payload, call)).model_dump()


class HorseRunner(TrainingRunner):
    """A runner in a process of its own: every descendant of this process belongs to its one attempt."""

    async def is_empty(self, job: TrainingJob, before: Footprint | None) -> bool:
        """Kill orphans too that cleared their environment: this process adopts them."""
        for descendant in psutil.Process().children(recursive=True):
            if descendant.pid != self._sampler.pid:
                with contextlib.suppress(psutil.Error):
                    descendant.kill()
        return await super().is_empty(job, before)
