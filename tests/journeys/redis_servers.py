"""Redis servers that a journey may kill, and clients that register experiments meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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


def register(lab: RunningLab, nth: int, told: list[tuple[str, bool]], begun: threading.Event) -> None:
    """Add what is acknowledged, and whether it was asked for after the failover began, until EACH were after it.

    A replica that lacks the last experiments gives their ids to others.
    """
    count = later = 0
    idea = {"tag": "t", "hypothesis": "h", "category": "other", "diff_summary": "d", "commit_sha": "abc1234"}
    give_up = time.monotonic() + PATIENCE_S
    with httpx.Client(base_url=lab.http.base_url, auth=ByKey(settings_of(lab.data)), timeout=60.0) as http:
        while later < EACH:
            key, asked_after = f"{nth}-{count}", begun.is_set()
            assert time.monotonic() < give_up, f"client {nth} got no answer to {key}"
            answer = http.post("/api/experiment/register", json=idea, headers={"idempotency-key": key})
            if answer.is_success:
                told.append((answer.json()["experiment_id"], asked_after))
                count, later = count + 1, later + asked_after
            else:
                assert answer.status_code in (409, 503), answer.text
                time.sleep(0.05)


def survives(lab: RunningLab, primary: redis.Redis, process: subprocess.Popen[bytes]) -> None:
    """Kill the primary under load: the lab goes on with what its replica had, and takes what was asked for later."""
    lab.setup()
    before = lab.until_status(lab.submit(), "keep")["experiment"]["experiment_id"]
    primary.set("{lab}:probe", 1)
    assert primary.wait(1, int(PATIENCE_S * 1000)) == 1  # the replica has all that was written before
    told: list[tuple[str, bool]] = []
    begun = threading.Event()
    with ThreadPoolExecutor(CLIENTS) as clients:
        asking = [clients.submit(register, lab, nth, told, begun) for nth in range(CLIENTS)]
        lab.until(lambda: len(told) > CLIENTS * EACH, "many are acknowledged")
        process.kill()
        process.wait()
        begun.set()
        for client in asking:
            client.result()
    newest, _ = told[-1]
    lab.until(lambda: lab.http.get(f"/api/experiment/{newest}").is_success, "the lab reads again")
    lost = {name for name, _ in told if lab.http.get(f"/api/experiment/{name}").status_code == 404}
    later = {name for name, asked_after in told if asked_after}
    after = lab.until_status(lab.submit(config_delta={"VALUE": 0.5}), "keep")["experiment"]
    assert lab.status(before) == "keep"
    assert after["attempt"] >= 1
    assert len(later) >= CLIENTS * EACH
    assert lost.isdisjoint(later)
    assert lab.post("lab/audit")["violations"] == []
