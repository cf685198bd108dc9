"""What every process does beside its work: it says that it is alive, and of itself what is so now."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from functions.kernel.process.alive import has_died
from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.process.readiness import until_ready
from state.client import Lab
from state.client_settings import host_name
from state.embedded import EmbeddedRedis
from state.errors import Unavailable
from state.settings import Settings
from tests.labs import gone


async def eventually(what: Callable[[], Awaitable[object]], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not await what():
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.01)


async def is_head(commit: str, process: Process) -> bool:
    return await process.presence.repository_head() == commit


def quick(settings: Settings) -> Settings:
    return settings.model_copy(update={"stale_s": 0.3})


async def test_what_a_process_says_of_itself_is_looked_up_for_every_announcement(settings: Settings) -> None:
    head = "old"
    threads = set[threading.Thread]()

    def facts() -> Mapping[str, Any]:
        threads.add(threading.current_thread())
        return {"repository_head": head}

    async with opened("keeper", quick(settings), facts=facts) as process:
        await eventually(lambda: is_head("old", process))
        head = "new"
        await eventually(lambda: is_head("new", process))

    assert threading.main_thread() not in threads  # git may take its time; the loop does not wait for it


async def test_a_fault_leaves_a_process_present(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    faults = iter([OSError("no git here")])

    def facts() -> Mapping[str, Any]:
        for fault in faults:
            raise fault
        return {}

    async with opened("keeper", quick(settings), facts=facts) as process:
        await eventually(lambda: process.presence.alive(60))

    assert "OSError: no git here" in caplog.text


async def test_a_wrong_password_is_told_at_once(redis_server: EmbeddedRedis, settings: Settings) -> None:
    lab = Lab(settings.lab, f"redis://:wrong@127.0.0.1:{redis_server.port}")
    try:
        async with asyncio.timeout(5):
            with pytest.raises(Unavailable, match="refuses our password"):
                await until_ready(lab)
    finally:
        await lab.close()


def test_a_process_is_known_to_have_died_only_where_its_pid_can_be_looked_up() -> None:
    dead = gone("events")
    pid = dead.rpartition(":")[2]

    assert has_died(dead)
    assert has_died(f"{dead}/3")
    assert not has_died(f"events@{host_name()}:{os.getpid()}")
    assert not has_died(f"events@another-host:{pid}")
    assert not has_died(f"{dead}/x")
    assert not has_died(pid)
