"""The connection to Redis when Redis is full, forbidding, crowded or silent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from redis import exceptions

import state.connection
from functions.kernel.process.running import ended
from state.client import Lab
from state.connection import unavailable
from state.embedded import EmbeddedRedis
from state.errors import Unavailable
from state.settings import Settings
from state.wakeups import Wakeups


@contextmanager
def silent(server: EmbeddedRedis) -> Iterator[None]:
    """Redis keeps its connections and says nothing, as behind a cut network; for half a minute at most."""
    assert server.pid is not None
    speaks_again = threading.Timer(30, os.kill, (server.pid, signal.SIGCONT))
    speaks_again.start()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        speaks_again.cancel()
        os.kill(server.pid, signal.SIGCONT)


@asynccontextmanager
async def connected(server: EmbeddedRedis, settings: Settings, timeout_s: float) -> AsyncIterator[Lab]:
    lab = Lab(settings.lab, server.url, timeout_s=timeout_s)
    try:
        yield lab
    finally:
        await lab.close()


async def wakes(wakeups: Wakeups, lab: Lab, within_s: float = 10.0) -> bool:
    """Whether what is published comes to be heard."""
    deadline = time.monotonic() + within_s
    with wakeups.subject("e1") as woken:
        while not woken.is_set() and time.monotonic() < deadline:
            await lab.command("PUBLISH", lab.channel("x"), json.dumps({"subject": "e1"}))
            await asyncio.sleep(0.02)
        return woken.is_set()


CANNOT_NOW = {
    "MISCONF Errors writing to the AOF file: No space left on device": "cannot write to its disk",
    "NOREPLICAS Not enough good replicas to write.": "too few replicas",
    "CLUSTERDOWN The cluster is down": "cluster is down",
    "TRYAGAIN Multiple keys request during rehashing of slot": "moving keys",
    "ASK 3999 127.0.0.1:6381": "moving keys",
    "MOVED 3999 127.0.0.1:6381": "another node",
    "ERR Script attempted to access a non local key in a cluster node script: a1": "another node",
    "ERR Script attempted to execute a command while the cluster is down script: a1": "cluster is down",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": "lost its primary",
    "LOADING Redis is loading the dataset in memory": "busy starting",
    "BUSY Redis is busy running a script.": "busy with a script",
    "UNBLOCKED force unblock from blocking operation": "become a replica",
    "READONLY You can't write against a read only replica.": "read-only replica",
    "OOM command not allowed when used memory > 'maxmemory'.": "no memory left",
    "ERR max number of clients reached": "no more clients",
}
FORBIDS = {
    "NOPERM User worker has no permissions to run the 'evalsha' command": "user may not do this",
    "ERR ACL failure in script: User worker has no permissions to run 'xadd'": "user may not do this",
    "NOAUTH Authentication required.": "refuses our password",
    "ERR This instance has cluster support disabled": "is no Cluster",
    "WRONGPASS invalid username-password pair or user is disabled.": "refuses our password",
}


@pytest.mark.parametrize("answer", [*CANNOT_NOW, *FORBIDS])
def test_redis_that_cannot_serve_now_is_worth_asking_again_and_one_that_forbids_is_not(answer: str) -> None:
    told = unavailable(parsed(answer))
    assert (CANNOT_NOW | FORBIDS)[answer] in told.detail
    assert told.hint
    assert bool(told.retry_after) == (answer in CANNOT_NOW)


def parsed(answer: str) -> exceptions.RedisError:
    """As redis-py makes it of Redis' words."""
    from redis._parsers.base import BaseParser

    found = BaseParser.parse_error(answer)  # type: ignore[no-untyped-call]
    assert isinstance(found, exceptions.RedisError)
    return found


async def test_who_waited_too_long_for_a_connection_is_told_that_all_are_in_use(
    redis_server: EmbeddedRedis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state.connection, "CONNECTIONS", 1)
    async with connected(redis_server, settings, 0.3) as lab:
        taken = asyncio.create_task(lab.blocking("BLPOP", lab.keys("never"), "2", wait_s=2))
        await asyncio.sleep(0.1)

        with pytest.raises(Unavailable, match="connections to Redis are in use"):
            await lab.blocking("BLPOP", lab.keys("never"), "2", wait_s=2)

        await ended(taken)


async def test_a_blocking_read_on_a_silent_connection_ends_and_the_next_one_works(
    redis_server: EmbeddedRedis, settings: Settings
) -> None:
    async with connected(redis_server, settings, 1.0) as lab:
        key = lab.keys("list")
        assert await lab.blocking("BLPOP", key, "0.05", wait_s=0.05) is None
        with silent(redis_server), pytest.raises(Unavailable, match="did not answer in time"):
            await asyncio.wait_for(lab.blocking("BLPOP", key, "0.1", wait_s=0.1), 5)
        await lab.command("RPUSH", key, "x")
        assert list(await lab.blocking("BLPOP", key, "1", wait_s=1)) == [key, "x"]


async def test_wake_ups_are_heard_again_after_silence_and_after_a_fault_of_their_own(
    redis_server: EmbeddedRedis,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        connected(redis_server, settings, 0.2) as lab,
        connected(redis_server, settings, 20.0) as publisher,
    ):
        wakeups = Wakeups(lab)
        heard, faults = wakeups._heard, [RuntimeError("a fault")]

        def faulty(channel: str, text: str) -> None:
            if faults:
                raise faults.pop()
            heard(channel, text)

        monkeypatch.setattr(wakeups, "_heard", faulty)
        listening = asyncio.create_task(wakeups.listen())
        try:
            assert await wakes(wakeups, publisher)
            with silent(redis_server):
                while "no answer to a ping" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert await wakes(wakeups, publisher)
        finally:
            await ended(listening)

    assert "RuntimeError: a fault" in caplog.text
