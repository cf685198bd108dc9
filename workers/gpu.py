"""One RQ worker per slot. A job rings: its process asks the lab for a run, and trains it.

`python -P -m workers.gpu SLOT`
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import BaseModel
from rq import Queue, Worker
from rq.job import Job
from rq.serializers import JSONSerializer

from functions.kernel.process.ending import adopt_orphans
from functions.kernel.process.logs import start_logging
from functions.kernel.process.redaction import hide
from functions.kernel.process.running import exit_with
from functions.kernel.table import chosen
from state.child_heartbeat import ChildHeartbeat
from state.embedded import broker_url
from state.errors import NightjarError
from state.rq_jobs import CheckedQueue, TrainJob, gpu_queue
from state.settings import Settings
from state.train_queue import broker, plainly
from workers.attempt.job import delivered
from workers.attempt.launch import die_with
from workers.lab_client import calling, found
from workers.slot import Slot
from workers.trainer import CALLED, train

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

_bound: tuple[Slot, Settings] | None = None
"""The slot of this process and its settings: RQ passes `perform` only the job's payload."""

RQ_TTL_S = 60
"""Seconds until RQ counts a silent worker as gone. Its blocking reads end shortly before. With RQ's default, a GPU
would be idle for seven minutes on a dead connection."""


class GpuWorker(Worker):
    """RQ's worker, whose child process (RQ: work horse) dies with it."""

    max_connection_wait_time = 5.0
    """Most seconds between two tries to reach the broker; RQ's default is 60."""

    def _set_ip_address(self, connection: Redis) -> None:
        """Replaced, because RQ reads CLIENT LIST, which the workers' Redis user may not."""
        connection.client_setname(self.name)
        self.ip_address = "unknown"

    def main_work_horse(self, job: Job, queue: Queue) -> NoReturn:
        die_with(self.pid or 0)
        adopt_orphans()
        super().main_work_horse(job, queue)
        os._exit(os.EX_OK)  # not reached: RQ's method ends so too

    def maintain_heartbeats(self, job: Job) -> None:
        """RQ would end the worker and its run if Redis does not answer one heartbeat."""
        try:
            super().maintain_heartbeats(job)
        except Exception:
            log.warning("RQ's heartbeat of %s failed; the run goes on", job.id, exc_info=True)


def perform(function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Answer one bell; RQ finds this function by its name."""
    if _bound is None:
        raise RuntimeError("this process is bound to no slot")
    start_logging(_bound[1], "runner")
    return asyncio.run(answered(*_bound))


async def answered(slot: Slot, settings: Settings) -> dict[str, Any]:
    """Train the run that the lab has for this slot, if there is one."""
    async with calling(await found(settings), ("pool::next", *CALLED)) as lab:
        asked = {"gpu_id": slot.gpu_id, "timeout": 0}
        work = (await delivered(lambda: lab.call("pool::next", asked)))["work"]
        if work is None:
            log.info("%s was called for nothing: the run has begun elsewhere, or is over", slot.gpu_id)
            return {"outcome": "nothing to do"}
        return {"outcome": await train(work, slot, settings, lab)}


def preload() -> None:
    """Import modules and build models before the fork, so that the processes of runs need not."""
    chosen(("pool::next", *CALLED))
    for model in _below(BaseModel):
        model.model_rebuild()


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in model.__subclasses__():
        yield each
        yield from _below(each)


def work(argument: str) -> int:
    """Run the jobs of one slot until a signal ends it; answers the exit code."""
    global _bound
    slot, settings = _bound = Slot.model_validate_json(argument), Settings()
    start_logging(settings, "worker")
    try:
        worker = rq_worker(settings, slot.gpu_id)
    except NightjarError as problem:
        return exit_with(problem)
    if (pulse := ChildHeartbeat.inherited()) is not None:
        pulse.from_thread()  # this thread blocks while it waits for jobs and attempts
    preload()
    gc.freeze()  # else a collection in the child would write to, and so copy, every shared page
    worker.work(logging_level=settings.log_level)
    return 0


def rq_worker(settings: Settings, gpu_id: str) -> GpuWorker:
    """The RQ worker of one slot. Raises Unavailable: the broker does not answer, or refuses us."""
    url = broker_url(settings, worker=True)
    hide(url)
    connection = broker(url)
    with plainly():
        return GpuWorker(
            [gpu_queue(settings.lab, gpu_id, connection)],
            # random, because RQ refuses the name of a live worker, and after a kill -9 a pid may be used again
            name=f"{gpu_id}-{os.getpid()}-{secrets.token_hex(4)}",
            connection=connection,
            job_class=TrainJob,
            queue_class=CheckedQueue,
            log_job_description=False,
            serializer=JSONSerializer,
            worker_ttl=RQ_TTL_S,
        )


if __name__ == "__main__":
    from workers import gpu  # this module is `__main__` here; RQ imports `perform` by its real name

    sys.exit(gpu.work(sys.argv[1]))
