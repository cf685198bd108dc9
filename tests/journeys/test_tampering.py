"""Jobs that are rewritten in Redis: refused, logged, never run, and the GPU trains on.

tests/state/test_train_queue.py has the job class refuse every rewrite of tests/tampering.py. Here whole runs show
that the experiment of a refused job is trained all the same.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from state.rq_jobs import gpu_queue, job_id
from state.train_queue import broker
from tests.journeys.running import FAST, RunningLab, running_lab
from tests.tampering import CANARY, NO_JOBS, rewrite

TAG = "t"
ZEN = "Beautiful is better than ugly"
"""Output of a process that imports the module `this`, as RQ does before a call."""
JUDGED = ("keep", "discard")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    with running_lab(tmp_path / "lab", FAST, NIGHTJAR_SILENT_S="3") as found:
        found.start()
        found.setup(TAG)
        yield found


@pytest.fixture
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


def test_a_rewritten_job_is_refused_and_its_experiment_and_the_next_are_trained(
    lab: RunningLab, rq: redis.Redis, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    lab.until_idle()
    worker = lab.process("workers.gpu")
    worker.send_signal(signal.SIGSTOP)  # else the job would be fetched before it is rewritten
    try:
        experiment = lab.submit(TAG)
        key = lab.until(lambda: key_of(rq, experiment), "the job is enqueued")
        rewrite(rq, key, "a dotted path", marker)
    finally:
        worker.send_signal(signal.SIGCONT)

    found = lab.until_status(experiment, *JUDGED, "crash", "lost")["experiment"]
    queue = gpu_queue("lab", found["gpu_id"], rq)
    for entry in NO_JOBS:
        rq.rpush(queue.key, entry)
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
    assert rq.llen(queue.key) == 0, "entries that are no jobs were passed over"
    assert lab.process("workers.gpu").pid == worker.pid
    assert lab.post("lab/audit")["violations"] == []
