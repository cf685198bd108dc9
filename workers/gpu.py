"""One RQ worker per GPU: runs gpu::train, one attempt at a time. `python -P -m workers.gpu OPTIONS`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import psutil
from rq import Queue, Worker
from rq.job import Job
from rq.serializers import JSONSerializer
from structlog.contextvars import bound_contextvars

from functions.lanes import TrainingJob
from functions.process.lifecycle import exit_with, opened
from functions.process.logs import hide, start_logging
from state.client import Lab
from state.embedded import broker_url
from state.errors import NightjarError
from state.experiments import Experiments
from state.pulse import Pulse
from state.records import Footprint
from state.settings import Settings
from state.train_queue import GpuQueue, TrainJob, broker, gpu_queue, plainly
from workers.attempt.kept import Kept
from workers.attempt.launch import adopt_orphans, die_with
from workers.attempt.runner import TrainingRunner
from workers.device import Device, Sampler
from workers.options import DeviceOptions

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

_bound: DeviceOptions | None = None
"""The slot of this process. RQ calls `perform` by name with what stands in the queue, and nothing else."""


RQ_TTL_S = 60
"""RQ's life of a worker between two heartbeats. Its reads give up shortly before: a connection that is dead at
the other end, or a broker that was stopped, would else hold the GPU for RQ's default of seven minutes."""


class GpuWorker(Worker):
    """RQ's worker, whose horse dies with it: training never goes on unwatched."""

    max_connection_wait_time = 5.0
    """Seconds between two tries to reach the broker; RQ's own would leave the GPU idle for up to a minute."""

    def _set_ip_address(self, connection: Redis) -> None:
        """Not asked for: it stands in a list of everybody's addresses, which the workers' user may not see."""
        connection.client_setname(self.name)
        self.ip_address = "unknown"

    def main_work_horse(self, job: Job, queue: Queue) -> NoReturn:
        die_with(self.pid or 0)
        adopt_orphans()
        super().main_work_horse(job, queue)
        os._exit(os.EX_OK)  # what the horse of rq ends with; not reached

    def maintain_heartbeats(self, job: Job) -> None:
        """RQ would end the worker, and with it the run, when Redis is away for longer than one heartbeat."""
        try:
            super().maintain_heartbeats(job)
        except Exception:
            log.warning("RQ's heartbeat of %s failed; the run goes on", job.id, exc_info=True)


def perform(function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """What a job means: call the function of the table that a TrainJob may name, in the lane `gpu`."""
    if _bound is None:
        raise RuntimeError("this process is bound to no GPU")
    return asyncio.run(_perform(function, payload, _bound))


async def _perform(function: str, payload: Mapping[str, Any], options: DeviceOptions) -> dict[str, Any]:
    settings = Settings()
    start_logging(settings, "runner")
    device = device_of(options)

    sampler = Sampler()

    def runner(lab: Lab) -> list[object]:
        return [
            HorseRunner(
                options.repo,
                device=device,
                settings=settings,
                lab_identity=lab.identity,
                work_dir=work_dir(settings, device),
                sampler=sampler,
                kept=kept_in(settings, device),
                command=options.command,
                python=options.python,
                tier=options.tier,
                pass_env=options.pass_env,
            )
        ]

    async with sampler, opened("runner", settings, lane="gpu", worker=True, extra=runner) as process:
        e = await Experiments(process.lab).get(str(payload["experiment_id"]))
        call = process.invoker.system(f"worker:{device.gpu_id}", "queue", e.traceparent)
        with bound_contextvars(gpu_id=device.gpu_id, tag=e.tag):
            return (await process.invoker.call(function, payload, call)).model_dump()


class HorseRunner(TrainingRunner):
    """A runner in a process of its own: whatever descends from it belongs to its one attempt."""

    async def is_empty(self, job: TrainingJob, before: Footprint | None) -> bool:
        """Orphans that cleared their environment are found too: this process adopts them."""
        for descendant in psutil.Process().children(recursive=True):
            if descendant.pid != self._sampler.pid:
                with contextlib.suppress(psutil.Error):
                    descendant.kill()
        return await super().is_empty(job, before)


def work_dir(settings: Settings, device: Device) -> Path:
    """Where the attempts of a slot are checked out and run."""
    return settings.data_dir / "work" / device.gpu_id.replace(":", "-")


def kept_in(settings: Settings, device: Device) -> Kept:
    """What the slot keeps of its failed attempts."""
    root = settings.data_dir / "failed" / device.gpu_id.replace(":", "-")
    return Kept(root, settings.keep_failed_s, settings.keep_failed_mb * 1024 * 1024)


def device_of(options: DeviceOptions) -> Device:
    """The slot that the options describe."""
    return Device(
        gpu_id=options.gpu_id,
        index=options.gpu_index,
        name=options.gpu_name,
        vram_mb=options.vram_mb,
        uuid=options.uuid,
        driver=options.driver,
        kind=options.kind,
    )


def main(argument: str) -> int:
    global _bound
    _bound = DeviceOptions.model_validate_json(argument)
    settings = Settings()
    start_logging(settings, "worker")
    # `python -m` calls this module __main__; RQ imports `perform` by its real name.
    import workers.gpu

    workers.gpu._bound = _bound
    try:
        worker = rq_worker(settings, _bound.gpu_id)
    except NightjarError as problem:
        return exit_with(problem)
    if (pulse := Pulse.inherited()) is not None:
        pulse.from_thread()  # RQ's main thread waits for jobs, and while a horse works for the horse
    worker.work(logging_level=settings.log_level)
    return 0


def rq_worker(settings: Settings, gpu_id: str) -> GpuWorker:
    """RQ's side of one slot, known to the broker.

    Raises:
        Unavailable: the broker does not answer, or refuses us.
    """
    url = broker_url(settings, worker=True)
    hide(url)
    connection = broker(url)
    with plainly():
        return GpuWorker(
            [gpu_queue(settings.lab, gpu_id, connection)],
            # RQ refuses the name of a worker that it believes alive: after a kill -9 a pid may come back
            name=f"{gpu_id}-{os.getpid()}-{secrets.token_hex(4)}",
            connection=connection,
            job_class=TrainJob,
            queue_class=GpuQueue,
            log_job_description=False,
            serializer=JSONSerializer,
            worker_ttl=RQ_TTL_S,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
