"""The RQ jobs of GPUs: a job rings for a worker, which asks the lab what to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis
from rq import Queue
from rq.serializers import JSONSerializer

from state.policy import LONGEST_EXTENSION_S
from state.rq_jobs import CheckedJob, CheckedQueue, enqueue_once, escaped

FUNCTION = "gpu::train"
"""The only function of the table that a job may call."""
USUAL_S = 660.0
"""Most seconds of a run without a limit."""


class TrainJob(CheckedJob):
    """A job that can only ring for one attempt under one lease."""

    ENTRY = "workers.gpu.perform"

    def is_ours(self, function: str, payload: Mapping[str, Any]) -> bool:
        """Whether its call matches its id."""
        match payload:
            case {"experiment_id": str(e), "attempt": int(n), "fence": int(f), **others}:
                named = self.id.endswith(f"_s{escaped(e)}-{n}-{f}")
                return not others and named and function == FUNCTION and n > 0 and f > 0
            case _:
                return False


ENTRY = TrainJob.ENTRY


def gpu_queue(lab: str, gpu_id: str, connection: redis.Redis) -> Queue:
    return CheckedQueue(
        f"nightjar-{lab}-{gpu_id}", connection=connection, job_class=TrainJob, serializer=JSONSerializer
    )


def job_id(lab: str, experiment_id: str, attempt: int, fence: int) -> str:
    """Id of the job of one lease. The fence keeps the job of an earlier lease from blocking the next."""
    return f"{escaped(lab)}_s{escaped(experiment_id)}-{attempt}-{fence}"


def enqueue(
    connection: redis.Redis, lab: str, gpu_id: str, payload: Mapping[str, Any], timeout_s: float | None
) -> bool:
    """Put an attempt on its GPU's queue; False if it is there already."""
    queue = gpu_queue(lab, gpu_id, connection)
    name = job_id(lab, str(payload["experiment_id"]), int(payload["attempt"]), int(payload["fence"]))
    longest_s = (timeout_s or USUAL_S) + LONGEST_EXTENSION_S
    return enqueue_once(queue, name, FUNCTION, payload, longest_s, TrainJob)
