"""A lab whose Redis dies: the Sentinels promote the replica, and the lab goes on by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.conftest import ByKey
from tests.journeys.running import PATIENCE_S, RunningLab, reserved_port, running_lab, settings_of

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

PASSWORD = "of-the-lab"
CLIENTS = 4
EACH = 10
"""Experiments that each client registers after the primary's death."""


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


class Redundant:
    """A primary with a replica and three Sentinels."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        ports = [stack.enter_context(reserved_port()).getsockname()[1] for _ in range(5)]
        self.primary, self.replica, *self.sentinels = ports
        common = f"requirepass {PASSWORD}\nmasterauth {PASSWORD}\nappendonly yes\nmaxmemory-policy noeviction"
        self.process = stack.enter_context(server(folder, "primary", f"port {self.primary}\n{common}"))
        follows = f"port {self.replica}\n{common}\nreplicaof 127.0.0.1 {self.primary}"
        stack.enter_context(server(folder, "replica", follows))
        self.admin = stack.enter_context(closing(client(self.primary)))
        until(lambda: self.admin.info("replication")["connected_slaves"] == 1, "the replica follows")
        for port in self.sentinels:
            watches = [
                f"port {port}",
                f"sentinel monitor mymaster 127.0.0.1 {self.primary} 2",
                f"sentinel auth-pass mymaster {PASSWORD}",
                "sentinel down-after-milliseconds mymaster 1000",
                "sentinel failover-timeout mymaster 10000",
            ]
            stack.enter_context(server(folder, f"sentinel-{port}", "\n".join(watches), "--sentinel"))
        for port in self.sentinels:
            with closing(client(port, None)) as sentinel:
                until(lambda at=sentinel: knows_all(at), "the Sentinels know each other and the replica")

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return f"redis+sentinel://:{PASSWORD}@{hosts}/mymaster"

    def is_copied(self) -> None:
        """Wait until the replica has all that was written before."""
        self.admin.set("probe", 1)
        assert self.admin.wait(1, int(PATIENCE_S * 1000)) == 1


def knows_all(sentinel: redis.Redis) -> bool:
    found: Any = sentinel.sentinel_master("mymaster")  # type: ignore[no-untyped-call, unused-ignore]
    return bool(found["num-other-sentinels"] == 2 and found["num-slaves"] == 1)


@pytest.fixture
def redundant(tmp_path: Path) -> Iterator[Redundant]:
    if shutil.which("redis-server") is None:
        assert not os.environ.get("CI"), "redis-server is not installed"
        pytest.skip("redis-server is not installed")
    with ExitStack() as stack:
        yield Redundant(tmp_path / "redis", stack)


@dataclass(frozen=True)
class Told:
    """An experiment that was acknowledged."""

    name: str
    at: float
    asked_after: bool
    """Whether it was asked for after the primary's death."""


def register(lab: RunningLab, nth: int, told: list[Told], killed: list[float]) -> None:
    """Add what is acknowledged, until EACH were that were asked for after the primary's death."""
    count = later = 0
    idea = {"tag": "t", "hypothesis": "h", "category": "other", "diff_summary": "d", "commit_sha": "abc1234"}
    give_up = time.monotonic() + PATIENCE_S
    with httpx.Client(base_url=lab.http.base_url, auth=ByKey(settings_of(lab.data)), timeout=60.0) as http:
        while later < EACH:
            key, asked_after = f"{nth}-{count}", bool(killed)
            assert time.monotonic() < give_up, f"client {nth} got no answer to {key}"
            answer = http.post("/api/experiment/register", json=idea, headers={"idempotency-key": key})
            if answer.is_success:
                told.append(Told(answer.json()["experiment_id"], time.monotonic(), asked_after))
                count, later = count + 1, later + asked_after
            else:
                assert answer.status_code in (409, 503), answer.text
                time.sleep(0.05)


def test_a_replica_that_is_promoted_under_load_has_what_it_had_and_takes_the_rest(
    redundant: Redundant, tmp_path: Path
) -> None:
    with running_lab(tmp_path / "lab", NIGHTJAR_REDIS_URL=redundant.url) as lab:
        lab.start()
        lab.setup()
        before = lab.until_status(lab.submit(), "keep")["experiment"]["experiment_id"]
        redundant.is_copied()
        told: list[Told] = []
        killed: list[float] = []
        with ThreadPoolExecutor(CLIENTS) as clients:
            asking = [clients.submit(register, lab, nth, told, killed) for nth in range(CLIENTS)]
            lab.until(lambda: len(told) > CLIENTS * EACH, "many are acknowledged")
            redundant.process.kill()
            redundant.process.wait()
            killed.append(time.monotonic())
            for client in asking:
                client.result()

        after = lab.until_status(lab.submit(config_delta={"VALUE": 0.5}), "keep")["experiment"]
        lost = {each.name for each in told if lab.http.get(f"/api/experiment/{each.name}").status_code == 404}
        later = [each for each in told if each.asked_after]
        down_s = min(each.at for each in later) - killed[0]
        print(f"acknowledged {len(told)}, lost {len(lost)}, first success after {down_s:.2f} s")

        assert lab.status(before) == "keep"
        assert after["attempt"] >= 1
        assert len(later) >= CLIENTS * EACH
        assert lost.isdisjoint(each.name for each in later)
        assert lab.post("lab/audit")["violations"] == []
