"""RQ's Redis side: one queue per GPU, whose jobs can only mean "run this function of the table"."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from rq import Queue
from rq.exceptions import DuplicateJobError, NoSuchJobError
from rq.executions import Execution
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer

from state.client import connection_options, unavailable

ENTRY = "workers.gpu.perform"
"""The one callable that a job may name."""
SPARE_S = 180
"""RQ's own timeout lies this much above the run's, which ends first in every normal case."""


class Refused(Exception):
    """A job that is not of our making: another callable, arguments, or a callback."""


class TrainJob(Job):
    """A job that can do nothing but call `ENTRY(function=..., payload=...)`.

    Anybody who can write to Redis can rewrite a job: RQ would import and call whatever it names.
    """

    @property
    def func(self) -> Callable[..., Any]:
        if self.func_name != ENTRY or self.instance is not None or self.args:
            raise Refused(f"job {self.id!r} names {self.func_name!r}: only {ENTRY!r} is run")
        if set(self.kwargs) != {"function", "payload"}:
            raise Refused(
                f"job {self.id!r} carries {sorted(self.kwargs)}: only function and payload are known"
            )
        found: object = super().func
        if not callable(found):
            raise Refused(f"job {self.id!r} names {ENTRY!r}, which is not there")
        return found

    @property
    def success_callback(self) -> None:
        self._refuse(self._success_callback_name)

    @property
    def failure_callback(self) -> None:
        self._refuse(self._failure_callback_name)

    @property
    def stopped_callback(self) -> None:
        self._refuse(self._stopped_callback_name)

    def _refuse(self, name: str | None) -> None:
        if name:
            raise Refused(f"job {self.id!r} names the callback {name!r}: there are none")


def broker(url: str) -> redis.Redis:
    """RQ's own connection: writes are not retried; RQ sets a timeout that leaves room for its blocking reads."""
    return redis.Redis.from_url(  # type: ignore[no-any-return, no-untyped-call, unused-ignore]
        url, protocol=2, retry=Retry(NoBackoff(), 0), socket_timeout=None, **connection_options(url)
    )


def gpu_queue(lab: str, gpu_id: str, connection: redis.Redis) -> Queue:
    """The queue of one GPU of one lab."""
    return Queue(
        f"nightjar-{lab}-{gpu_id}", connection=connection, job_class=TrainJob, serializer=JSONSerializer
    )


def job_id(lab: str, experiment_id: str, attempt: int) -> str:
    """The job of an attempt: RQ allows letters, digits, `_` and `-` in ids, ours also have dots."""
    return f"{_escaped(lab)}_s{_escaped(experiment_id)}-{attempt}"


def _escaped(name: str) -> str:
    return name.replace("_", "__").replace(".", "_d")


class TrainQueue:
    """Hands leased attempts to the GPUs' queues."""

    def __init__(self, lab: str, url: str, timeout_s: float = 5.0) -> None:
        self._lab = lab
        self._connection: redis.Redis = redis.Redis.from_url(  # type: ignore[no-untyped-call, unused-ignore]
            url, protocol=2, retry=Retry(NoBackoff(), 0), socket_timeout=timeout_s, **connection_options(url)
        )

    async def enqueue(self, gpu_id: str, payload: Mapping[str, Any], timeout_s: float | None) -> bool:
        """Put an attempt on its GPU's queue; False where it stands there already.

        Raises:
            Unavailable: the broker does not answer.
        """
        try:
            return await asyncio.to_thread(self._enqueue, gpu_id, payload, timeout_s)
        except RedisError as problem:
            raise unavailable(problem) from problem

    def _enqueue(self, gpu_id: str, payload: Mapping[str, Any], timeout_s: float | None) -> bool:
        queue = gpu_queue(self._lab, gpu_id, self._connection)
        name = job_id(self._lab, str(payload["experiment_id"]), int(payload["attempt"]))
        try:
            self._push(queue, name, payload, timeout_s)
        except DuplicateJobError:
            if self._is_waiting(queue, name):
                return False
            try:
                self._push(queue, name, payload, timeout_s)
            except DuplicateJobError:
                return False  # another dispatcher has put it back meanwhile
        return True

    def _push(self, queue: Queue, name: str, payload: Mapping[str, Any], timeout_s: float | None) -> None:
        queue.enqueue_call(
            ENTRY,
            kwargs={"function": "gpu::train", "payload": dict(payload)},
            job_id=name,
            timeout=int((timeout_s or 660) + SPARE_S),
            result_ttl=3600,
            failure_ttl=24 * 3600,
            unique=True,
        )

    def _is_waiting(self, queue: Queue, name: str) -> bool:
        """Whether the job will still run; one that ended, or fell out of its queue, is removed."""
        try:
            job = TrainJob.fetch(name, connection=self._connection, serializer=JSONSerializer)
        except NoSuchJobError:
            return False
        status = job.get_status(refresh=False)
        if status == JobStatus.STARTED or (status == JobStatus.QUEUED and name in queue.get_job_ids()):
            return True
        self._delete(job)
        return False

    def _delete(self, job: Job) -> None:
        """Delete a job with its executions; RQ itself fails at one whose worker died long ago: what it says of itself
        is gone a minute before its entry is.
        """
        with self._connection.pipeline() as moves:
            for execution_id in job.execution_registry.get_execution_ids():
                Execution(execution_id, job.id, self._connection).delete(job=job, pipeline=moves)
            moves.execute()
        job.delete()

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()
