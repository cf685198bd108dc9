"""The RQ jobs of Nightjar's workers: each can only call one function of ours, with what its id names."""

from __future__ import annotations

import json
import logging
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

import redis
from redis.exceptions import ResponseError
from rq import Queue
from rq.exceptions import DuplicateJobError, InvalidJobOperation, NoSuchJobError
from rq.executions import Execution
from rq.intermediate_queue import IntermediateQueue
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer
from rq.utils import as_text

from state.policy import LONGEST_EXTENSION_S

log = logging.getLogger(__name__)

SPARE_S = 180
"""Seconds between a job's own limit and RQ's timeout: the job should end first."""
MOST_BYTES = 16_384
"""Most bytes of a job; ours have about a thousand."""

FUNCTION = "gpu::train"
"""The only function of the table that a job may call."""
USUAL_S = 660.0
"""Most seconds of a run without a limit."""
LONGEST_S = 120.0
"""Most seconds of a job, the language model aside."""

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


class JobRefused(NoSuchJobError):
    """A job that we have not made. For RQ it does not exist: it runs no job, and calls no failure callback."""


class CheckedJob(Job, ABC):
    """A job that can only call `ENTRY(function=..., payload=...)`, with what `is_ours` allows.

    Other clients of Redis can rewrite a job, and RQ would import and call anything that it names. So the whole job is
    checked before RQ uses it; a job that we have not made is removed and logged.
    """

    ENTRY: ClassVar[str]
    """The only callable that it may name."""

    def __init__(self, id: str | None = None, connection: redis.Redis | None = None, serializer: Any = None):
        super().__init__(id, connection, JSONSerializer)  # never pickle

    @classmethod
    def fetch(cls, id: str, connection: redis.Redis | None = None, serializer: Any = None) -> Job:
        """The job with this id. Raises JobRefused: not ours, it is removed. NoSuchJobError: no such job."""
        try:
            if not _NAME.fullmatch(id.partition(":")[0]):
                raise JobRefused("its id is not one of ours")
            return super().fetch(id, connection, serializer)
        except JobRefused as problem:
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
                raise JobRefused(f"it is over {MOST_BYTES} bytes")
            values: list[Any] = self.connection.hmget(self.key, fields)
        except ResponseError as problem:
            if "WRONGTYPE" in str(problem):
                raise JobRefused("it is not a hash") from None
            raise
        self.restore({field: value for field, value in zip(fields, values, strict=True) if value is not None})

    def restore(self, raw_data: Mapping[Any, Any]) -> None:
        """Set the job's fields from Redis. Raises JobRefused if we have not made it."""
        try:
            found = {as_text(name): value for name, value in raw_data.items()}
            foreign = [name for name in _FOREIGN if found.get(name)]
            data = _unpacked(found["data"])
            super().restore({name: found[name] for name in _OURS if name in found})
        except Exception:  # noqa: BLE001 - the job is not ours, and its text must not enter our log
            raise JobRefused("it cannot be read") from None
        if foreign:
            raise JobRefused(f"it carries {', '.join(foreign)}")
        match data:
            case [self.ENTRY, None, [], {"function": str(function), "payload": dict(payload), **others}] if (
                not others and self.is_ours(function, payload)
            ):
                pass
            case _:
                raise JobRefused(f"it is not {self.ENTRY} of what its id names")
        if self.timeout is None or self.timeout < SPARE_S:
            raise JobRefused("its time limit is too short")

    @abstractmethod
    def is_ours(self, function: str, payload: Mapping[str, Any]) -> bool:
        """Whether its call matches its id."""


def _unpacked(data: bytes) -> Any:
    """A job's content, at most MOST_BYTES; RQ would decompress it to any size."""
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(data, MOST_BYTES)
    if unpacking.unconsumed_tail:
        raise ValueError("too much")
    return json.loads(text)


class CheckedQueue(Queue):
    """A queue that removes entries that are not ids of jobs."""

    @classmethod
    def lmove(cls, connection: redis.Redis, queue_key: str, timeout: int | None) -> tuple[str, Any] | None:
        moved: tuple[str, Any] | None
        while (moved := super().lmove(connection, queue_key, timeout)) is not None:
            if _NAME.fullmatch(moved[1].decode("ascii", "replace")):
                break
            log.error("an entry of %s is not an id, refused; who else can write to this Redis?", queue_key)
            connection.lrem(IntermediateQueue.get_intermediate_queue_key(queue_key), 1, moved[1])
        return moved


def escaped(name: str) -> str:
    """A name as a part of a job's id: RQ allows letters, digits, `_` and `-` in ids; ours also have dots."""
    return name.replace("_", "__").replace(".", "_d")


def enqueue_once(
    queue: Queue,
    name: str,
    function: str,
    payload: Mapping[str, Any],
    longest_s: float,
    job: type[CheckedJob],
) -> bool:
    """Put a job on its queue; False if it is there already."""
    try:
        _push(queue, name, function, payload, longest_s, job)
    except DuplicateJobError:
        if _is_waiting(queue, name, job):
            return False
        try:
            _push(queue, name, function, payload, longest_s, job)
        except DuplicateJobError:
            return False  # another process has enqueued it meanwhile
    return True


def _push(
    queue: Queue,
    name: str,
    function: str,
    payload: Mapping[str, Any],
    longest_s: float,
    job: type[CheckedJob],
) -> None:
    queue.enqueue_call(
        job.ENTRY,
        kwargs={"function": function, "payload": dict(payload)},
        job_id=name,
        description=function,
        timeout=int(longest_s + SPARE_S),
        result_ttl=3600,
        failure_ttl=24 * 3600,
        unique=True,
    )


def _is_waiting(queue: Queue, name: str, kind: type[CheckedJob]) -> bool:
    """Whether the job will still run. An ended job, or one outside its queue, is deleted."""
    try:
        job = kind.fetch(name, connection=queue.connection, serializer=JSONSerializer)
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
    """Delete a job with its executions. RQ's own delete fails if they have expired."""
    with job.connection.pipeline() as moves:
        for execution_id in job.execution_registry.get_execution_ids():
            Execution(execution_id, job.id, job.connection).delete(job=job, pipeline=moves)
        moves.execute()
    with suppress(InvalidJobOperation):  # another process has deleted it meanwhile
        job.delete()


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


def gpu_queue(lab: str, gpu_id: str, connection: redis.Redis) -> Queue:
    return CheckedQueue(
        f"nightjar-{lab}-{gpu_id}", connection=connection, job_class=TrainJob, serializer=JSONSerializer
    )


def job_id(lab: str, experiment_id: str, attempt: int, fence: int) -> str:
    """Id of the job of one lease. The fence keeps the job of an earlier lease from blocking the next."""
    return f"{escaped(lab)}_s{escaped(experiment_id)}-{attempt}-{fence}"


def enqueue_run(
    connection: redis.Redis, lab: str, gpu_id: str, payload: Mapping[str, Any], timeout_s: float | None
) -> bool:
    """Put an attempt on its GPU's queue; False if it is there already."""
    queue = gpu_queue(lab, gpu_id, connection)
    name = job_id(lab, str(payload["experiment_id"]), int(payload["attempt"]), int(payload["fence"]))
    longest_s = (timeout_s or USUAL_S) + LONGEST_EXTENSION_S
    return enqueue_once(queue, name, FUNCTION, payload, longest_s, TrainJob)


class PiJob(CheckedJob):
    """A job that can call one function of the lane for one tag. Its id names both."""

    ENTRY = "workers.pi.perform"

    def is_ours(self, function: str, payload: Mapping[str, Any]) -> bool:
        """Whether its call matches its id."""
        match payload:
            case {"tag": str(tag), "number": int(n), **others}:
                return not others and self.id.endswith(_named(function, tag, n)) and n > 0
            case _:
                return False


def pi_queue(lab: str, connection: redis.Redis) -> Queue:
    return CheckedQueue(
        f"nightjar-{lab}-pi", connection=connection, job_class=PiJob, serializer=JSONSerializer
    )


def enqueue_writing(
    connection: redis.Redis, lab: str, function: str, tag: str, number: int, attempt: int, longest_s: float
) -> bool:
    """Have a function of the lane called for a tag; False if that waits already."""
    queue = pi_queue(lab, connection)
    name = f"{escaped(lab)}_a{attempt}{_named(function, tag, number)}"
    payload = {"tag": tag, "number": number}
    return enqueue_once(queue, name, function, payload, LONGEST_S + longest_s, PiJob)


def _named(function: str, tag: str, number: int) -> str:
    """The end of a job's id."""
    return f"_p{escaped(function.replace('::', '-'))}-{escaped(tag)}-{number}"
