"""A whole lab on one machine: its Redis and its processes, started together and drained together."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from functions.formats.program_document import charter_of
from functions.process.author_keys import may_write
from functions.process.readiness import connected, until_ready
from functions.process.supervision import ProcessGroup, stopping_on_signals
from functions.profiles import swarm_dimensions
from functions.table import table
from state.charter_file import charter_file, read_charter
from state.client_settings import host_name
from state.embedded import EmbeddedRedis, make_data_dir
from state.errors import Unavailable
from state.presence import Announced, Presence
from state.settings import Settings
from state.tokens import Tokens
from triggers import own_redis
from triggers.http.hosts import check_bind
from triggers.lab_parts import KINDS, LabParts
from triggers.own_redis import OwnRedis
from triggers.ports import check_port, local_url

READY_S = 120.0
LOOK_S = 0.05
WITHOUT_REDIS_S = 30.0
"""How long processes may try to end in order while Redis does not come back."""


class LocalLab:
    """A started lab."""

    def __init__(
        self,
        parts: LabParts,
        redis: EmbeddedRedis | None,
        group: ProcessGroup,
        stop: asyncio.Event,
        announce: Callable[[str], None],
    ) -> None:
        self.parts = parts
        self.url = local_url(parts.settings)
        self.stop = stop
        self.worker: Mapping[str, Any] | None = None
        """What this machine's worker says of its runs, once it is ready."""
        self._redis = OwnRedis(redis, parts.settings.silent_s, announce)
        self._group = group

    @property
    def own_settings(self) -> Settings:
        """Settings with which commands reach this very lab, as its operator."""
        return self.parts.settings.model_copy(update={"url": None, "token": None})

    @classmethod
    @asynccontextmanager
    async def started(cls, parts: LabParts, announce: Callable[[str], None]) -> AsyncIterator[LocalLab]:
        """Start everything and wait until it is ready; at the end drain it.

        Raises:
            Conflict: a lab runs on this data directory already. Invalid: a setting names what cannot be used.
            Unavailable: something does not start, or it ended without Redis.
        """
        settings = parts.settings
        check_port(settings)
        swarm_dimensions(settings.swarm_profile)
        charter_of(read_charter(charter_file(settings)))
        make_data_dir(settings.data_dir)
        with contextlib.ExitStack() as stack:
            redis = None
            if settings.redis_url is None:
                redis = stack.enter_context(EmbeddedRedis.start(settings))
            await check_redis(settings)
            table()  # imported before the forks, not in each
            group = ProcessGroup(parts.specs(), settings.data_dir / "logs", announce)
            with stopping_on_signals(group) as stop:
                lab = cls(parts, redis, group, stop, announce)
                await group.start()
                try:
                    await lab.until_ready()
                    yield lab
                finally:
                    await lab.drain()

    async def run(self) -> None:
        """Keep everything running until told to stop."""
        async with self._redis.kept() as keeping:
            await self._group.run_until(self.stop, *keeping)

    async def drain(self) -> None:
        """Let every process end in order; workers first finish their runs. Without Redis none can: they are
        killed after a while, and what they ran is started again by the next `up`.

        Raises:
            Unavailable: they were, for this reason.
        """
        time = asyncio.get_running_loop().time
        async with self._redis.kept():
            draining = asyncio.create_task(self._group.drain(), name="drain")
            give_up = time() + WITHOUT_REDIS_S
            while not draining.done():
                await asyncio.wait([draining], timeout=own_redis.LOOK_S)
                refusal = self._redis.refusal
                if refusal is None:
                    give_up = time() + WITHOUT_REDIS_S
                elif time() > give_up:
                    self._group.force()
                    await draining
                    raise refusal
            await draining

    async def until_ready(self) -> None:
        """Wait until the web process answers and every process has said that it is alive.

        Raises:
            Unavailable: not within two minutes.
        """
        settings = self.parts.settings
        loop = asyncio.get_running_loop()
        give_up = loop.time() + READY_S
        async with connected(settings) as client:
            presence = Presence(client)
            while not self.stop.is_set():
                missing = "the web process"
                with contextlib.suppress(Unavailable):
                    alive = await presence.alive(settings.stale_s)
                    own = f"supervisor@{host_name()}:{self._group.pids.get('worker')}"
                    self.worker = next((p.facts for p in alive if p.name == own), None)
                    missing = self._missing(alive)
                    if not missing and await asyncio.to_thread(answers, self.url):
                        return
                if loop.time() > give_up:
                    raise Unavailable(
                        f"{missing or 'the web process'} did not become ready within {READY_S:.0f} s",
                        hint=f"the logs are in {settings.data_dir / 'logs'}",
                    )
                await asyncio.sleep(LOOK_S)

    def _missing(self, alive: Sequence[Announced]) -> str:
        found = Counter(p.facts["kind"] for p in alive)
        wanted = dict.fromkeys(KINDS, 1)
        if may_write(self.parts.settings):
            wanted["pi"] = 1
        if self.parts.repo is not None:
            slots = sum(p.facts["slots"] for p in alive if p.facts["kind"] == "supervisor")
            wanted |= {"supervisor": 1, "keeper": slots}
        return ", ".join(kind for kind, count in wanted.items() if found[kind] < count)


def answers(url: str) -> bool:
    """Whether the web process at this URL is ready."""
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=5.0)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    return False


async def check_redis(settings: Settings) -> None:
    """Refuse a Redis that would refuse every process, before any is started.

    Raises:
        Unavailable: it wants another password, the lab has another layout, or does not answer for half a minute.
        Invalid: the web process would refuse to listen.
    """
    async with connected(settings) as lab:
        await until_ready(lab, settings)
        await check_bind(settings, Tokens(lab))
