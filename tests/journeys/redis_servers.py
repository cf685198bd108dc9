"""Redis servers that a journey may kill, and clients that register experiments meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.conftest import ByKey
from tests.journeys.running import PATIENCE_S, RunningLab, settings_of

PASSWORD = "of-the-lab"
CLIENTS = 4
EACH = 10
"""Experiments that each client registers after the failover began."""


def need_redis_server() -> None:
    """Without one a skip on a laptop, a failure in CI."""
    if shutil.which("redis-server") is None:
        assert not os.environ.get("CI"), "redis-server is not installed"
        pytest.skip("redis-server is not installed")


@contextmanager
def server(folder: Path, name: str, lines: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Redis server or a Sentinel, killed at the end."""
    place = folder / name
    place.mkdir(parents=True)
    (place / "redis.conf").write_text(f"bind 127.0.0.1\ndir {place}\n{lines}\n")
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(["redis-server", str(place / "redis.conf"), *words], stdout=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def client(port: int, password: str | None = PASSWORD) -> redis.Redis:
    return redis.Redis(port=port, password=password, decode_responses=True, driver_info=None)


def until(met: Any, what: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            if met():
                return
        except redis.RedisError:
            pass
        assert time.monotonic() < give_up, what
        time.sleep(0.1)


@dataclass(frozen=True)
class Told:
    """An experiment that was acknowledged."""

    name: str
    at: float
    asked_after: bool
    """Whether it was asked for after the failover began."""


def register(lab: RunningLab, nth: int, told: list[Told], begun: list[float]) -> None:
    """Add what is acknowledged, until EACH were that were asked for after the failover began."""
    count = later = 0
    idea = {"tag": "t", "hypothesis": "h", "category": "other", "diff_summary": "d", "commit_sha": "abc1234"}
    give_up = time.monotonic() + PATIENCE_S
    with httpx.Client(base_url=lab.http.base_url, auth=ByKey(settings_of(lab.data)), timeout=60.0) as http:
        while later < EACH:
            key, asked_after = f"{nth}-{count}", bool(begun)
            assert time.monotonic() < give_up, f"client {nth} got no answer to {key}"
            answer = http.post("/api/experiment/register", json=idea, headers={"idempotency-key": key})
            if answer.is_success:
                told.append(Told(answer.json()["experiment_id"], time.monotonic(), asked_after))
                count, later = count + 1, later + asked_after
            else:
                assert answer.status_code in (409, 503), answer.text
                time.sleep(0.05)


@dataclass(frozen=True)
class FailedOver:
    """What clients were told before, during and after a failover."""

    told: list[Told]
    lost: set[str]
    """Experiments that were acknowledged, and that the lab does not know any more."""
    down_s: float
    """Longest time without a success since it began, in seconds."""

    @property
    def later(self) -> set[str]:
        """What was asked for after it began."""
        return {each.name for each in self.told if each.asked_after}


def failed_over(lab: RunningLab, fail: Callable[[], None]) -> FailedOver:
    """Let clients register experiments, and `fail` once many are acknowledged."""
    told: list[Told] = []
    begun: list[float] = []
    with ThreadPoolExecutor(CLIENTS) as clients:
        asking = [clients.submit(register, lab, nth, told, begun) for nth in range(CLIENTS)]
        lab.until(lambda: len(told) > CLIENTS * EACH, "many are acknowledged")
        fail()
        begun.append(time.monotonic())
        for client in asking:
            client.result()
    lab.until(lambda: lab.http.get(f"/api/experiment/{told[-1].name}").is_success, "the lab reads again")
    lost = {each.name for each in told if lab.http.get(f"/api/experiment/{each.name}").status_code == 404}
    successes = sorted([begun[0], *(each.at for each in told if each.at > begun[0])])
    down_s = max(after - before for before, after in pairwise(successes))
    print(f"acknowledged {len(told)}, lost {len(lost)}, no success for {down_s:.2f} s")
    return FailedOver(told, lost, down_s)
