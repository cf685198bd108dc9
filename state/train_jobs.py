"""The RQ jobs of workers: a job can only train one attempt."""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections.abc import Mapping
from typing import Any

import redis
from redis.exceptions import ResponseError
from rq import Queue
from rq.exceptions import DuplicateJobError, NoSuchJobError
from rq.executions import Execution
from rq.intermediate_queue import IntermediateQueue
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer
from rq.utils import as_text

from state.policy import LONGEST_EXTENSION_S

log = logging.getLogger(__name__)

ENTRY = "workers.gpu.perform"
"""The only callable that a job may name."""
FUNCTION = "gpu::train"
"""The only function of the table that a job may call."""
SPARE_S = 180
"""RQ's timeout is this much longer than the run's longest, so that the run's normally ends first."""
MOST_BYTES = 262_144
"""Most bytes of a job; ours have about a thousand, and 100,000 where as many constants are set as may be."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,600}")
_OURS = (
    *("data", "origin", "status", "timeout", "result_ttl", "failure_ttl", "ttl", "worker_name"),
    *("created_at", "enqueued_at", "started_at", "ended_at", "last_heartbeat"),
)
"""Fields that our jobs have."""
_FOREIGN = (
    *("success_callback_name", "failure_callback_name", "stopped_callback_name", "webhooks"),
    *("dependency_id", "dependency_ids", "group_id"),
    *("retries_left", "number_of_retries", "retry_intervals", "repeats_left", "repeat_intervals"),
)
"""Fields that make RQ call, send or repeat something; our jobs never have them."""


class Refused(NoSuchJobError):
    """A job that we have not made.

    For RQ it does not exist: RQ neither runs it nor calls its failure callback.
    """


class TrainJob(Job):
    """A job that can only call `ENTRY(function=FUNCTION, payload={experiment_id, attempt, fence, assignment})`.

    Other clients of Redis can rewrite a job, and RQ would import and call anything that it names. So the whole job is
    checked before RQ uses it; a job that we have not made is removed and logged.
    """

    def __init__(self, id: str | None = None, connection: redis.Redis | None = None, serializer: Any = None):
        super().__init__(id, connection, JSONSerializer)  # never pickle

    @classmethod
    def fetch(cls, id: str, connection: redis.Redis | None = None, serializer: Any = None) -> Job:
        """The job with this id.

        Raises:
            Refused: we have not made it; it is removed. NoSuchJobError: there is no such job.
        """
        try:
            if not _NAME.fullmatch(id.partition(":")[0]):
                raise Refused("its id is not one of ours")
            return super().fetch(id, connection, serializer)
        except Refused as problem:
            log.error("job %.100r is refused: %s; who else can write to this Redis?", id, problem)
            if connection is not None:
                connection.delete(cls.key_for(id))
            raise

    def refresh(self) -> None:
        """Read the known fields, unless they are too large."""
        fields = [*_OURS, *_FOREIGN]
        try:
            with self.connection.pipeline(transaction=False) as pipe:
                pipe.exists(self.key)
                for field in fields:
                    pipe.hstrlen(self.key, field)
                exists, *sizes = pipe.execute()
            if not exists:
                raise NoSuchJobError(f"there is no job {self.id!r}")
            if sum(sizes) > MOST_BYTES:
                raise Refused(f"it is over {MOST_BYTES} bytes")
            values: list[Any] = self.connection.hmget(self.key, fields)
        except ResponseError as problem:
            if "WRONGTYPE" in str(problem):
                raise Refused("it is not a hash") from None
            raise
        self.restore({field: value for field, value in zip(fields, values, strict=True) if value is not None})

    def restore(self, raw_data: Mapping[Any, Any]) -> None:
        """Set the job's fields from Redis. Raises Refused if we have not made it."""
        try:
            found = {as_text(name): value for name, value in raw_data.items()}
            foreign = [name for name in _FOREIGN if found.get(name)]
            data = _unpacked(found["data"])
            super().restore({name: found[name] for name in _OURS if name in found})
        except Exception:  # noqa: BLE001 - the job is not ours, and its text must not enter our log
            raise Refused("it cannot be read") from None
        if foreign:
            raise Refused(f"it carries {', '.join(foreign)}")
        if not self._is_ours(data):
            raise Refused(f"it is not {ENTRY} of {FUNCTION} for the attempt that its id names")
        if self.timeout is None or self.timeout < SPARE_S:
            raise Refused("its time limit is too short")

    def _is_ours(self, data: Any) -> bool:
        match data:
            case [
                str(entry), None, [],
                {"function": str(function), "payload": {
                    "experiment_id": str(e), "attempt": int(n), "fence": int(f), "assignment": str()}},
            ]:  # fmt: skip
                exact = len(data[3]) == 2 and len(data[3]["payload"]) == 4
                named = self.id.endswith(f"_s{_escaped(e)}-{n}-{f}")
                return exact and named and (entry, function) == (ENTRY, FUNCTION) and n > 0 and f > 0
            case _:
                return False


def _unpacked(data: bytes) -> Any:
    """A job's content, at most MOST_BYTES; RQ would decompress it to any size."""
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(data, MOST_BYTES)
    if unpacking.unconsumed_tail:
        raise ValueError("too much")
    return json.loads(text)


class GpuQueue(Queue):
    """The queue of one GPU; removes entries that are not ids of jobs."""

    @classmethod
    def lmove(cls, connection: redis.Redis, queue_key: str, timeout: int | None) -> tuple[str, Any] | None:
        moved: tuple[str, Any] | None
        while (moved := super().lmove(connection, queue_key, timeout)) is not None:
            if _NAME.fullmatch(moved[1].decode("ascii", "replace")):
                break
            log.error("an entry of %s is not an id, refused; who else can write to this Redis?", queue_key)
            connection.lrem(IntermediateQueue.get_intermediate_queue_key(queue_key), 1, moved[1])
        return moved


def gpu_queue(lab: str, gpu_id: str, connection: redis.Redis) -> Queue:
    """The queue of one GPU."""
    return GpuQueue(
        f"nightjar-{lab}-{gpu_id}", connection=connection, job_class=TrainJob, serializer=JSONSerializer
    )


def job_id(lab: str, experiment_id: str, attempt: int, fence: int) -> str:
    """Id of the job of one lease; with the fence, so that a job left by an earlier lease does not block the next.

    RQ allows letters, digits, `_` and `-` in ids; ours also have dots.
    """
    return f"{_escaped(lab)}_s{_escaped(experiment_id)}-{attempt}-{fence}"


def _escaped(name: str) -> str:
    return name.replace("_", "__").replace(".", "_d")


def enqueue(
    connection: redis.Redis, lab: str, gpu_id: str, payload: Mapping[str, Any], timeout_s: float | None
) -> bool:
    """Put an attempt on its GPU's queue; False if it is there already."""
    queue = gpu_queue(lab, gpu_id, connection)
    name = job_id(lab, str(payload["experiment_id"]), int(payload["attempt"]), int(payload["fence"]))
    try:
        _push(queue, name, payload, timeout_s)
    except DuplicateJobError:
        if _is_waiting(queue, name):
            return False
        try:
            _push(queue, name, payload, timeout_s)
        except DuplicateJobError:
            return False  # another dispatcher has enqueued it meanwhile
    return True


def _push(queue: Queue, name: str, payload: Mapping[str, Any], timeout_s: float | None) -> None:
    queue.enqueue_call(
        ENTRY,
        kwargs={"function": FUNCTION, "payload": dict(payload)},
        job_id=name,
        description=FUNCTION,
        timeout=int((timeout_s or 660) + LONGEST_EXTENSION_S + SPARE_S),
        result_ttl=3600,
        failure_ttl=24 * 3600,
        unique=True,
    )


def _is_waiting(queue: Queue, name: str) -> bool:
    """Whether the job will still run; one that has ended, or is not in its queue, is deleted."""
    try:
        job = TrainJob.fetch(name, connection=queue.connection, serializer=JSONSerializer)
    except NoSuchJobError:
        return False
    status = job.get_status(refresh=False)
    if status == JobStatus.STARTED:
        return True
    if status == JobStatus.QUEUED and queue.connection.lpos(queue.key, name) is not None:
        return True
    _delete(job)
    return False


def _delete(job: Job) -> None:
    """Delete a job with its executions, also if they have expired, at which RQ's own delete fails."""
    with job.connection.pipeline() as moves:
        for execution_id in job.execution_registry.get_execution_ids():
            Execution(execution_id, job.id, job.connection).delete(job=job, pipeline=moves)
        moves.execute()
    job.delete()
