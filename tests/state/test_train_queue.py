"""RQ's side of the queue: nothing but gpu::train can be made of a job, whoever rewrites it."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from rq import Queue
from rq.executions import Execution
from rq.job import Job, JobStatus
from rq.serializers import DefaultSerializer

from state import rq_jobs
from state.embedded import EmbeddedRedis
from state.rq_jobs import FUNCTION, CheckedJob, JobRefused, TrainJob, gpu_queue
from state.settings import Settings
from state.train_queue import TrainQueue, broker
from tests.tampering import CANARY, REWRITES, rewrite

ATTEMPT = {"experiment_id": "t.a_b-1", "attempt": 1, "fence": 4}


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """RQ's keys carry no prefix: these tests have a Redis of their own."""
    with EmbeddedRedis.start(Settings.model_validate({"data": tmp_path_factory.mktemp("rq")})) as server:
        yield server


@pytest.fixture
def connection(own_redis: EmbeddedRedis) -> Iterator[redis.Redis]:
    found = broker(own_redis.url)
    found.flushdb()
    yield found
    found.close()


@pytest.fixture
def train_queue(own_redis: EmbeddedRedis, connection: redis.Redis) -> Iterator[TrainQueue]:
    found = TrainQueue("lab", own_redis.url)
    yield found
    found.close()


def the_job(connection: redis.Redis) -> Job:
    (job,) = gpu_queue("lab", "h:0", connection).jobs
    return job


async def test_an_attempt_becomes_one_job_of_one_entry(
    train_queue: TrainQueue, connection: redis.Redis
) -> None:
    assert await train_queue.enqueue("h:0", ATTEMPT, 60)

    job = the_job(connection)
    assert isinstance(job, TrainJob)
    called = (TrainJob.ENTRY, {"function": "gpu::train", "payload": ATTEMPT})
    assert (job.id, job.func_name, job.kwargs) == ("lab_st_da__b-1-1-4", *called)
    assert json.loads(zlib.decompress(job.to_dict()["data"]))[0] == TrainJob.ENTRY

    connection.hset(job.key, "data", b"garbage")
    connection.delete(gpu_queue("lab", "h:0", connection).key)
    assert await train_queue.enqueue("h:0", ATTEMPT, 60)
    assert the_job(connection).kwargs == called[1]


async def test_a_job_of_a_dead_worker_is_put_back(train_queue: TrainQueue, connection: redis.Redis) -> None:
    await train_queue.enqueue("h:0", ATTEMPT, 60)
    job = the_job(connection)
    with connection.pipeline() as moves:
        execution = Execution.create(job, 60, moves)
        moves.execute()
    connection.delete(execution.key)  # it expires before the registry's entry does
    gpu_queue("lab", "h:0", connection).remove(job)

    assert await train_queue.enqueue("h:0", ATTEMPT, 60)

    assert the_job(connection).id == job.id
    assert job.execution_registry.get_execution_ids() == []
    assert job.started_job_registry.get_job_ids(cleanup=False) == []


async def test_a_job_that_died_as_it_was_started_does_not_hold_up_the_next_lease(
    train_queue: TrainQueue, connection: redis.Redis
) -> None:
    await train_queue.enqueue("h:0", ATTEMPT, 60)
    the_job(connection).set_status(JobStatus.STARTED)  # its worker is killed before the run begins
    connection.delete(gpu_queue("lab", "h:0", connection).key)
    assert await train_queue.enqueue("h:0", ATTEMPT | {"fence": 5}, 60)
    assert the_job(connection).kwargs["payload"] == ATTEMPT | {"fence": 5}


@pytest.mark.parametrize("meanwhile", ["put back", "deleted"])
async def test_a_job_that_another_dispatcher_put_back_or_deleted_meanwhile_waits_once(
    train_queue: TrainQueue, connection: redis.Redis, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    await train_queue.enqueue("h:0", ATTEMPT, 60)
    connection.delete(gpu_queue("lab", "h:0", connection).key)
    is_waiting, delete = rq_jobs._is_waiting, rq_jobs._delete

    def after_a_push(queue: Queue, name: str, kind: type[CheckedJob]) -> bool:
        found = is_waiting(queue, name, kind)
        rq_jobs._push(queue, name, FUNCTION, ATTEMPT, 60, kind)
        return found

    def after_a_deletion(job: Job) -> None:
        job.delete()
        delete(job)

    if meanwhile == "put back":
        monkeypatch.setattr(rq_jobs, "_is_waiting", after_a_push)
    else:
        monkeypatch.setattr(rq_jobs, "_delete", after_a_deletion)

    assert await train_queue.enqueue("h:0", ATTEMPT, 60) == (meanwhile == "deleted")

    assert len(gpu_queue("lab", "h:0", connection)) == 1


@pytest.mark.parametrize("what", REWRITES)
async def test_a_rewritten_job_is_refused_and_removed_and_nothing_of_it_runs_or_stands_in_the_log(
    train_queue: TrainQueue,
    connection: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    what: str,
) -> None:
    await train_queue.enqueue("h:0", ATTEMPT, 60)
    key = the_job(connection).key
    rewrite(connection, key, what, tmp_path / "marker")

    queue = gpu_queue("lab", "h:0", connection)
    assert queue.dequeue_any([queue], None, connection=connection, job_class=TrainJob) is None

    refusals = [record for record in caplog.records if "is refused" in record.getMessage()]
    assert [record.levelname for record in refusals] == ["ERROR"]
    assert key.removeprefix("rq:job:") in refusals[0].getMessage()
    assert CANARY not in caplog.text
    assert not connection.exists(key)
    assert not (tmp_path / "marker").exists()
    assert "this" not in sys.modules


async def test_a_pickled_job_is_never_unpickled_whatever_serializer_is_named(connection: redis.Redis) -> None:
    job = Queue("nightjar-lab-h:0", connection=connection).enqueue("os.getcwd", job_id="lab_st-1-1-1")
    with pytest.raises(JobRefused, match="cannot be read"):
        TrainJob.fetch(job.id, connection=connection, serializer=DefaultSerializer)
