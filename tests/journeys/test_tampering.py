"""Jobs that somebody rewrites in Redis: refused, logged, never run, and the GPU trains on."""

from __future__ import annotations

import json
import pickle
import signal
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis

from state.train_queue import ENTRY, broker, gpu_queue, job_id
from tests.journeys.running import RunningLab, running_lab

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

TAG = "t"
CANARY = "canary-5f1c"
"""Stands in everything that is put into a job: no log may have it."""
ZEN = "Beautiful is better than ugly"
"""What a process prints that imports the module `this`, as RQ would to call something in it."""
JUDGED = ("keep", "discard")

Rewrite = Callable[[dict[str, Any], Path], Mapping[str, bytes | str]]


class Bomb:
    """Makes a file where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def calling(
    name: str, instance: Any = None, args: list[Any] | None = None, **kwargs: Any
) -> dict[str, bytes]:
    return {"data": zlib.compress(json.dumps([name, instance, args or [], kwargs]).encode())}


def named(callback: str) -> Rewrite:
    return lambda payload, marker: {f"{callback}_callback_name": "this.s"}


REWRITES: dict[str, Rewrite] = {
    "another function of the table": lambda payload, marker: calling(
        ENTRY, function="experiment::stop", payload={"experiment_id": payload["experiment_id"], "reason": CANARY}
    ),
    "a function that is never queued": lambda payload, marker: calling(
        ENTRY, function="pool::deregister", payload={"gpu_id": CANARY}
    ),
    "a dotted path": lambda payload, marker: calling("os.system", args=[f"touch {marker}; echo {CANARY}"]),
    "a module that acts when it is imported": lambda payload, marker: calling("this.s", args=[CANARY]),
    "a method on an instance": lambda payload, marker: calling("touch", instance=f"pathlib.Path({str(marker)!r})"),
    "a success callback": named("success"),
    "a failure callback": named("failure"),
    "a stopped callback": named("stopped"),
    "a webhook": lambda payload, marker: {
        "webhooks": json.dumps([{"url": f"http://127.0.0.1:1/{CANARY}", "job_status": "finished"}])
    },
    "retries for ever": lambda payload, marker: {"retries_left": "1000000000"},
    "pickled data": lambda payload, marker: {
        "data": zlib.compress(pickle.dumps((Bomb(marker), CANARY))),
    },
    "garbage": lambda payload, marker: {"data": b"\x00\xff\xfe" + CANARY.encode()},
    "garbage in a number": lambda payload, marker: {"timeout": CANARY, "created_at": b"\xff"},
    "deep nesting": lambda payload, marker: {"data": zlib.compress(b"[" * 15_000)},
    "further arguments": lambda payload, marker: calling(
        ENTRY, function="gpu::train", payload=payload, environment={CANARY: "1"}
    ),
    "a further field": lambda payload, marker: calling(
        ENTRY, function="gpu::train", payload=payload | {"config_delta": {"VALUE": CANARY}}
    ),
    "another attempt": lambda payload, marker: calling(
        ENTRY, function="gpu::train", payload=payload | {"experiment_id": f"{CANARY}-1"}
    ),
    "too much": lambda payload, marker: calling(
        ENTRY, function="gpu::train", payload=payload, more=CANARY + "x" * 10_000_000
    ) | {"origin": "x" * 1_000_000},
    "much that was packed small": lambda payload, marker: {"data": zlib.compress(b" " * 50_000_000)},
    "a time limit that ends every run": lambda payload, marker: {"timeout": "1"},
}  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with running_lab(tmp_path_factory.mktemp("lab"), NIGHTJAR_START_GRACE_S="1") as found:
        found.start()
        found.setup(TAG)
        yield found


@pytest.fixture(scope="module")
def rq(lab: RunningLab) -> Iterator[redis.Redis]:
    connection = broker(json.loads((lab.data / "redis.json").read_text())["url"])
    yield connection
    connection.close()


def logs(lab: RunningLab) -> str:
    return "".join(file.read_text(errors="replace") for file in (lab.data / "logs").glob("*"))


def key_of(rq: redis.Redis, experiment: str) -> str | None:
    """The job of an experiment's first attempt, once it is enqueued."""
    of_any_fence = job_id("lab", experiment, 1, 0).removesuffix("0")
    return next((key.decode() for key in rq.scan_iter(match=f"rq:job:{of_any_fence}*")), None)


@pytest.mark.parametrize("what", REWRITES)
def test_a_rewritten_job_is_refused_and_its_experiment_and_the_next_are_trained(
    lab: RunningLab, rq: redis.Redis, tmp_path: Path, what: str
) -> None:
    marker = tmp_path / "marker"
    lab.until_idle()
    worker = lab.process("workers.gpu")
    worker.send_signal(signal.SIGSTOP)  # else the job would be fetched before it is rewritten
    try:
        experiment = lab.submit(TAG)
        key = lab.until(lambda: key_of(rq, experiment), "the job is enqueued")
        rewrite(rq, key, REWRITES[what](payload_of(rq, key), marker))
    finally:
        worker.send_signal(signal.SIGCONT)

    found = lab.until_status(experiment, *JUDGED, "crash", "lost")["experiment"]
    following = lab.until_status(lab.submit(TAG), *JUDGED, "crash", "lost")["experiment"]

    name = key.removeprefix("rq:job:")
    refusals = [line for line in logs(lab).splitlines() if f"job '{name}' is refused" in line]
    assert len(refusals) == 1
    assert "[error" in refusals[0]
    assert (found["status"] in JUDGED, found["attempt"]) == (True, 1), found["error"]
    assert (following["status"] in JUDGED, following["attempt"]) == (True, 1), following["error"]
    assert not marker.exists()
    assert ZEN not in logs(lab)
    assert CANARY not in logs(lab)
    assert lab.process("workers.gpu").pid == worker.pid
    assert lab.post("lab/audit")["violations"] == []


def rewrite(rq: redis.Redis, key: str, fields: Mapping[str, bytes | str]) -> None:
    for name, value in fields.items():
        rq.hset(key, name, value)


def payload_of(rq: redis.Redis, key: str) -> dict[str, Any]:
    data: Any = rq.hget(key, "data")
    payload: dict[str, Any] = json.loads(zlib.decompress(data))[3]["payload"]
    return payload


@pytest.mark.parametrize(
    "entry",
    [b"\xff\xfe\x00", b"no id: ../../x", b"", b"x" * 100_000, b"never-made"],
    ids=lambda e: repr(e[:8]),
)
def test_an_entry_of_the_queue_that_is_no_job_is_passed_over(
    lab: RunningLab, rq: redis.Redis, entry: bytes
) -> None:
    lab.until_idle()
    worker = lab.process("workers.gpu")
    queue = gpu_queue("lab", lab.get("pool/list")["workers"][0]["gpu_id"], rq)

    rq.rpush(queue.key, entry)
    found = lab.until_status(lab.submit(TAG), *JUDGED, "crash", "lost")["experiment"]

    assert (found["status"] in JUDGED, found["attempt"]) == (True, 1), found["error"]
    assert lab.process("workers.gpu").pid == worker.pid
    assert rq.llen(queue.key) == 0


def test_a_job_that_is_no_hash_any_more_is_refused_too(lab: RunningLab, rq: redis.Redis) -> None:
    lab.until_idle()
    worker = lab.process("workers.gpu")
    worker.send_signal(signal.SIGSTOP)
    try:
        experiment = lab.submit(TAG)
        key = lab.until(lambda: key_of(rq, experiment), "the job is enqueued")
        rq.delete(key)
        rq.set(key, CANARY)
    finally:
        worker.send_signal(signal.SIGCONT)

    found = lab.until_status(experiment, *JUDGED, "crash", "lost")["experiment"]

    assert (found["status"] in JUDGED, found["attempt"]) == (True, 1), found["error"]
    assert "it is no hash" in logs(lab)
