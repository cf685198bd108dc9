"""Says that a process is alive: to the lab by announcements, to its parent by heartbeats."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import psutil

from functions.kernel.process.running import ended
from state.child_heartbeat import ChildHeartbeat
from state.client import Lab
from state.client_settings import host_name
from state.errors import Unavailable
from state.presence import Presence
from state.settings import Settings

log = logging.getLogger(__name__)

_NAME = re.compile(r"\w+@(?P<host>[^:]+):(?P<pid>\d+)(/\d+)?")


def process_name(kind: str) -> str:
    return f"{kind}@{host_name()}:{os.getpid()}"


def has_died(name: str) -> bool:
    """Whether a process, or one of its consumers (`<name>/<n>`), is known to be gone: its pid is free on this host.

    A process of another host, or one with a reused pid, may be alive.
    """
    found = _NAME.fullmatch(name)
    return found is not None and found["host"] == host_name() and not psutil.pid_exists(int(found["pid"]))


@asynccontextmanager
async def beating() -> AsyncIterator[None]:
    """Send heartbeats to the parent process, where it listens, until the block ends."""
    heartbeat = ChildHeartbeat.inherited()
    task = asyncio.create_task(heartbeat.from_loop()) if heartbeat is not None else None
    try:
        yield
    finally:
        if task is not None:
            await ended(task)


@asynccontextmanager
async def announced(
    kind: str,
    settings: Settings,
    lab: Lab,
    *,
    facts: Callable[[], Mapping[str, Any]] = dict,
    hand_over: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[None]:
    """Announce a process of this kind until it ends; ends it when the lab is not the one that it began with.

    `facts` describes the process. It is called before each announcement, in a thread, so it may block. Counts are
    handed over with each announcement, and at the end.
    """
    name, presence = process_name(kind), Presence(lab)
    who = {"kind": kind, "pid": os.getpid(), "host": host_name()}

    async def announce() -> None:
        while True:
            try:
                said = await asyncio.to_thread(facts)
                await presence.announce(name, {**who, **said})
                if reason := await lab.outlived():
                    log.error("%s ends: %s", name, reason)
                    os.kill(os.getpid(), signal.SIGTERM)  # drains; its supervisor starts the right version
                    return
                if hand_over is not None:
                    await hand_over()
            except Unavailable as problem:
                log.warning("cannot say that %s is alive: %s", name, problem.detail)
            except Exception:  # a process that works but fell silent would look dead for ever
                log.exception("cannot say that %s is alive", name)
            await asyncio.sleep(settings.heartbeat_s / 2)

    announcing = asyncio.create_task(announce())
    try:
        async with beating():
            yield
    finally:
        await ended(announcing)
        with suppress(Unavailable):
            await presence.leave(name)
            if hand_over is not None:
                await hand_over()
