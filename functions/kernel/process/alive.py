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
    announcing = _Announcing(kind, settings, lab, facts, hand_over)
    going_on = asyncio.create_task(announcing.go_on())
    try:
        async with beating():
            yield
    finally:
        await ended(going_on)
        with suppress(Unavailable):
            await announcing.leave()


class _Announcing:
    def __init__(
        self,
        kind: str,
        settings: Settings,
        lab: Lab,
        facts: Callable[[], Mapping[str, Any]],
        hand_over: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._name = process_name(kind)
        self._who = {"kind": kind, "pid": os.getpid(), "host": host_name()}
        self._pause_s = settings.heartbeat_s / 2
        self._lab = lab
        self._presence = Presence(lab)
        self._facts = facts
        self._hand_over = hand_over

    async def go_on(self) -> None:
        while True:
            try:
                said = await asyncio.to_thread(self._facts)
                await self._presence.announce(self._name, {**self._who, **said})
                if reason := await self._lab.outlived():
                    log.error("%s ends: %s", self._name, reason)
                    os.kill(os.getpid(), signal.SIGTERM)  # drains; its supervisor starts the right version
                    return
                if self._hand_over is not None:
                    await self._hand_over()
            except Unavailable as problem:
                log.warning("cannot say that %s is alive: %s", self._name, problem.detail)
            except Exception:  # a process that works but fell silent would look dead for ever
                log.exception("cannot say that %s is alive", self._name)
            await asyncio.sleep(self._pause_s)

    async def leave(self) -> None:
        await self._presence.leave(self._name)
        if self._hand_over is not None:
            await self._hand_over()
