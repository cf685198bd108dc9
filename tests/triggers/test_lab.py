"""A lab whose own Redis dies, and does not want to start again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

import triggers.lab
from functions.kernel.process.supervision import ProcessGroup, ProcessSpec, RestartBackoff
from state.embedded import EmbeddedRedis, adopt
from state.errors import Unavailable
from state.settings import Settings
from tests.labs import eventually
from triggers.lab import LabParts, LocalLab

pytestmark = pytest.mark.process

STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
SILENT_S = 1.5
PATIENCE_S = 60.0


class Started:
    """A lab of one process that does not end when it is asked to."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings.model_validate(
            {"data": folder / "data", "silent_s": SILENT_S, "redis_appendfsync": "always"}
        )
        self.said: list[str] = []
        self.redis = EmbeddedRedis.start(self.settings)
        self.stop = asyncio.Event()
        spec = ProcessSpec("worker", (sys.executable, "-c", STUBBORN), None, drain_s=float("inf"))
        self.group = ProcessGroup([spec], folder / "logs", self.said.append)
        self.log = folder / "logs" / "worker.log"
        parts = LabParts(self.settings, repo=None)
        self.lab = LocalLab(parts, self.redis, self.group, self.stop, self.said.append)

    @property
    def aof(self) -> Path:
        return next((self.settings.data_dir / "redis" / "appendonlydir").glob("*.incr.aof"))

    def kill_redis(self) -> None:
        assert self.redis.pid is not None
        os.kill(self.redis.pid, signal.SIGKILL)

    def heard(self, words: str) -> int:
        return sum(words in line for line in self.said)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    monkeypatch.setattr(triggers.lab, "REDIS_LOOK_S", 0.05)
    monkeypatch.setattr(triggers.lab, "BACKOFF", RestartBackoff(first_s=0.05, most_s=0.1))
    monkeypatch.setattr(triggers.lab, "WITHOUT_REDIS_S", 0.5)
    found = Started(tmp_path)
    with found.redis:
        yield found


async def test_redis_that_refuses_its_data_is_told_once_and_comes_back_when_they_are_repaired(
    started: Started,
) -> None:
    running = asyncio.create_task(started.lab.run())
    good = started.aof.read_bytes()
    started.aof.write_bytes(b"rubbish" * 100)

    started.kill_redis()
    await eventually(lambda: started.heard("does not start again"))
    await asyncio.sleep(0.5)
    tellings = started.heard("does not start again"), started.heard("back up:"), running.done()
    started.aof.write_bytes(good)
    await eventually(lambda: started.heard("it is started again"))

    assert tellings == (1, 1, False)
    assert adopt(started.settings.data_dir)
    started.stop.set()
    await asyncio.wait_for(running, PATIENCE_S)


async def test_a_drain_without_redis_ends_after_a_while_and_says_why(started: Started) -> None:
    await started.group.start()
    await eventually(lambda: started.log.exists() and "up" in started.log.read_text())
    started.aof.write_bytes(b"rubbish" * 100)
    started.kill_redis()

    with pytest.raises(Unavailable, match="refuses the data") as told:
        await asyncio.wait_for(started.lab.drain(), PATIENCE_S)

    assert told.value.hint
    assert started.group.pids == {}


async def test_a_drain_with_redis_waits_however_long_it_takes(started: Started) -> None:
    await started.group.start()
    await eventually(lambda: started.log.exists() and "up" in started.log.read_text())
    draining = asyncio.create_task(started.lab.drain())

    await asyncio.sleep(1.0)
    waits = not draining.done()
    started.group.force()
    await draining

    assert waits


async def test_redis_that_was_stopped_counts_as_dead_and_comes_back_with_all_that_it_acknowledged(
    started: Started,
) -> None:
    running = asyncio.create_task(started.lab.run())
    first = started.redis.pid
    assert first is not None
    with redis.Redis.from_url(started.redis.url) as client:
        client.set("acknowledged", "yes")

    os.kill(first, signal.SIGSTOP)
    await eventually(lambda: started.heard("it is started again"))

    assert started.said == [
        "Redis gave no answer for 1.5 s: killed",
        "Redis had died; it is started again",
    ]
    assert started.redis.pid != first
    with redis.Redis.from_url(started.redis.url) as client:
        assert client.get("acknowledged") == b"yes"
    started.stop.set()
    await asyncio.wait_for(running, PATIENCE_S)


async def test_redis_that_refuses_us_or_runs_a_long_script_still_answers(started: Started) -> None:
    running = asyncio.create_task(started.lab.run())
    first = started.redis.pid
    with redis.Redis.from_url(started.redis.url) as client, redis.Redis.from_url(started.redis.url) as other:
        client.config_set("busy-reply-threshold", 100)
        endless = asyncio.create_task(asyncio.to_thread(client.eval, "while true do end", 0))
        await asyncio.sleep(3 * SILENT_S)
        other.script_kill()
        with pytest.raises(redis.ResponseError, match="killed by user"):
            await endless
        other.config_set("requirepass", "other")
        await asyncio.sleep(3 * SILENT_S)

        assert (started.redis.pid, started.said) == (first, [])
    started.stop.set()
    await asyncio.wait_for(running, PATIENCE_S)


async def test_redis_that_was_killed_while_it_rewrote_its_data_comes_back_at_once(started: Started) -> None:
    running = asyncio.create_task(started.lab.run())
    with redis.Redis.from_url(started.redis.url) as client:
        client.config_set("rdb-key-save-delay", 1_000_000)
        client.mset({f"key{n}": n for n in range(60)})
        client.bgrewriteaof()
        server = psutil.Process(started.redis.pid)
        await eventually(lambda: bool(server.children()))
        rewriter = server.children()[0]

    started.kill_redis()
    await eventually(lambda: started.heard("it is started again"))

    assert not rewriter.is_running() or rewriter.status() == psutil.STATUS_ZOMBIE
    started.stop.set()
    await asyncio.wait_for(running, PATIENCE_S)
