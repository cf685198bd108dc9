"""A lab in real processes whose Redis fails for a while: nobody restarts, nothing is lost, the run counts once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import redis

from tests.journeys.running import FAST, RunningLab, running_lab

LONG: dict[str, Any] = {"config_delta": {"SECONDS": 3.0}}
FAULT_S = 4.0
"""Longer than the run: it ends while Redis is away."""


@pytest.fixture(scope="module")
def one_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """One lab for all faults: it has to be whole again after each, in the same processes."""
    with running_lab(tmp_path_factory.mktemp("lab"), FAST, NIGHTJAR_REDIS_TIMEOUT_S="1") as found:
        found.start()
        yield found


def admin(lab: RunningLab) -> redis.Redis:
    url: str = json.loads((lab.data / "redis.json").read_text())["url"]
    return redis.Redis.from_url(url)


@contextmanager
def config(server: redis.Redis, name: str, value: Any) -> Iterator[None]:
    before: Any = server.config_get(name)[name]
    server.config_set(name, value)
    try:
        yield
    finally:
        server.config_set(name, before)


@contextmanager
def out_of_memory(server: redis.Redis) -> Iterator[None]:
    with config(server, "maxmemory", 1):
        yield


@contextmanager
def read_only(server: redis.Redis) -> Iterator[None]:
    server.replicaof("127.0.0.1", 1)
    yield
    server.replicaof("NO", "ONE")


@contextmanager
def another_password(server: redis.Redis) -> Iterator[None]:
    with config(server, "requirepass", "another"):
        for kind in ("normal", "pubsub"):
            server.client_kill_filter(_type=kind, skipme=True)
        yield


@contextmanager
def slow(server: redis.Redis) -> Iterator[None]:
    """It answers nobody, and does afterwards what it was told meanwhile."""
    server.client_pause(int(FAULT_S * 1000), all=True)
    yield


FAULTS = {
    "out of memory": out_of_memory,
    "read-only": read_only,
    "another password": another_password,
    "slow": slow,
}


def pids(lab: RunningLab) -> set[int]:
    """Our own processes, horses and what they have just forked aside."""
    kinds = ("triggers.web", "triggers.events", "triggers.clock", "workers.supervisor", "workers.keeper")
    return {p.pid for kind in kinds for p in lab.unforked(f"-m {kind}")}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(name, marks=[] if name in ("slow", "another password") else pytest.mark.long)
        for name in FAULTS
    ],
)
def test_a_run_that_ends_while_redis_fails_is_delivered_once_and_everybody_goes_on_by_himself(
    one_lab: RunningLab, fault: str
) -> None:
    lab, tag = one_lab, fault.replace(" ", "-")
    lab.until_idle()
    lab.setup(tag)
    before = pids(lab)
    with closing(admin(lab)) as server:
        experiment = lab.submit(tag, **LONG)
        lab.until_training(experiment)

        with FAULTS[fault](server):
            ready = within(FAULT_S, lambda: status(lab, "/readyz") == 503)
            alive = status(lab, "/healthz")
            lab.until(lambda: not lab.processes("train.py"), "the run ends")

        found = lab.until_status(experiment, "keep", "crash")["experiment"]
        following = lab.until_status(lab.submit(tag), "keep", "discard")["experiment"]
        lab.until_idle()

    assert (ready, alive) == (True, 200)
    assert (found["status"], found["attempt"]) == ("keep", 1)
    assert following["attempt"] == 1
    assert finishes(lab, experiment) == 1
    assert pids(lab) == before
    assert lab.post("lab/audit")["violations"] == []


def status(lab: RunningLab, path: str) -> int:
    return lab.http.get(path, timeout=10.0).status_code


def within(seconds: float, met: Callable[[], bool]) -> bool:
    """Whether it comes true in that time."""
    give_up = time.monotonic() + seconds
    while not (found := met()) and time.monotonic() < give_up:
        time.sleep(0.05)
    return found


def finishes(lab: RunningLab, experiment: str) -> int:
    with closing(admin(lab)) as server:
        found: Any = server.xrange("{lab}:events")
    wanted = (b"experiment.finished", experiment.encode())
    return sum((fields[b"type"], fields[b"subject"]) == wanted for _, fields in found)
