"""The web process, as a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.settings import Settings
from triggers.ports import free_port

pytestmark = pytest.mark.process


@asynccontextmanager
async def web_process(settings: Settings) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """A web process of this lab, and its port."""
    port = free_port(0)
    assert settings.redis_url is not None
    env = os.environ | {
        "NIGHTJAR_LAB": settings.lab,
        "NIGHTJAR_REDIS_URL": settings.redis_url.get_secret_value(),
        "NIGHTJAR_DATA": str(settings.data_dir),
        "NIGHTJAR_PORT": str(port),
    }
    argv = [sys.executable, "-P", "-m", "triggers.web"]
    web = await asyncio.create_subprocess_exec(*argv, env=env, cwd=Path(__file__).parents[2], stderr=PIPE)
    try:
        await _until_it_answers(port)
        yield web, port
    finally:
        with contextlib.suppress(ProcessLookupError):
            web.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_web_process_that_is_asked_to_end_ends_its_event_streams_in_order_and_says_goodbye(
    settings: Settings, process: Process, number: signal.Signals
) -> None:
    async with (
        web_process(settings) as (web, port),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
        http.stream("GET", "/api/events") as events,
    ):
        before = {p.name for p in await process.presence.alive(60)}
        web.send_signal(number)
        received = await events.aread()
        _, said = await asyncio.wait_for(web.communicate(), 60)

    after = {p.name for p in await process.presence.alive(60)}
    assert [name for name in before - after if name.endswith(f":{web.pid}")]
    assert received.startswith(b"id: ")
    assert web.returncode == 0, said.decode()
    assert b"ERROR" not in said, said.decode()  # cut streams would be logged


async def _until_it_answers(port: int) -> None:
    give_up = time.monotonic() + 30
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        while True:
            try:
                assert (await http.get("/api/lab/status")).is_success
            except httpx.TransportError:
                assert time.monotonic() < give_up
                await asyncio.sleep(0.05)
            else:
                return
