"""A whole lab on one machine: its Redis and its processes, started together and drained together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from functions.process.lifecycle import until_ready
from functions.process.supervision import Backoff, ProcessGroup, ProcessSpec, stopping_on_signals
from state.client import Lab as Client
from state.embedded import EmbeddedRedis, redis_url
from state.errors import Conflict, Unavailable
from state.presence import Presence, Process
from state.pulse import LOOKS
from state.settings import Settings, own_environment
from state.tokens import Tokens
from triggers.http.guard import check_bind

READY_S = 120.0
REDIS_LOOK_S = 0.5
REDIS_BACKOFF = Backoff(first_s=1.0, most_s=30.0)
WITHOUT_REDIS_S = 30.0
"""How long processes may try to end in order while Redis does not come back."""
KINDS = ("web", "events", "clock")


@dataclass(frozen=True)
class Plan:
    """What to start."""

    settings: Settings
    repo: Path | None
    """Without one there is no worker."""
    cpu: int | None = None
    gpu: str = "all"
    command: str | None = None


class Lab:
    """A started lab."""

    def __init__(
        self,
        plan: Plan,
        redis: EmbeddedRedis | None,
        group: ProcessGroup,
        stop: asyncio.Event,
        announce: Callable[[str], None],
    ) -> None:
        self.plan = plan
        self.url = local_url(plan.settings)
        self.stop = stop
        self._redis = redis
        self._group = group
        self._announce = announce
        self._refusal: Unavailable | None = None
        """Why Redis does not come back, while it does not."""

    @classmethod
    @asynccontextmanager
    async def started(cls, plan: Plan, announce: Callable[[str], None]) -> AsyncIterator[Lab]:
        """Start everything and wait until it is ready; at the end drain it.

        Raises:
            Conflict: a lab runs on this data directory already. Unavailable: something does not start, or it
                ended without Redis.
        """
        settings = plan.settings
        check_port(settings)
        with contextlib.ExitStack() as stack:
            redis = None
            if settings.redis_url is None:
                redis = stack.enter_context(EmbeddedRedis.start(settings))
            await check_redis(settings)
            group = ProcessGroup(specs(plan), settings.data_dir / "logs", announce)
            with stopping_on_signals(group) as stop:
                lab = cls(plan, redis, group, stop, announce)
                await group.start()
                try:
                    lab.write_down()
                    await lab.until_ready()
                    yield lab
                finally:
                    await lab.drain()

    def write_down(self) -> None:
        """Leave the URL where other commands of the same data directory look for it."""
        path = self.plan.settings.data_dir / "web.json"
        path.write_text(json.dumps({"url": self.url, "lab": self.plan.settings.lab, "pid": os.getpid()}))

    async def run(self) -> None:
        """Keep everything running until told to stop."""
        async with self._kept_redis() as reviving:
            await self._group.run_until(self.stop, *reviving)

    async def drain(self) -> None:
        """Let every process end in order; workers first finish their runs. Without Redis none can: they are
        killed after a while, and what they ran is started again by the next `up`.

        Raises:
            Unavailable: they were, for this reason.
        """
        time = asyncio.get_running_loop().time
        async with self._kept_redis():
            draining = asyncio.create_task(self._group.drain(), name="drain")
            give_up = time() + WITHOUT_REDIS_S
            while not draining.done():
                await asyncio.wait([draining], timeout=REDIS_LOOK_S)
                refusal = self._refusal
                if refusal is None:
                    give_up = time() + WITHOUT_REDIS_S
                elif time() > give_up:
                    self._group.force()
                    await draining
                    raise refusal
            await draining

    @asynccontextmanager
    async def _kept_redis(self) -> AsyncIterator[list[asyncio.Task[None]]]:
        """The tasks that keep our own Redis alive; none for a Redis of others."""
        if self._redis is None:
            yield []
            return
        keeping = [
            asyncio.create_task(self._keep(self._redis), name="keep Redis"),
            asyncio.create_task(self._end_silent(self._redis), name="listen to Redis"),
        ]
        try:
            yield keeping
        finally:
            for task in keeping:
                task.cancel()

    async def _keep(self, redis: EmbeddedRedis) -> None:
        """Start a dead Redis again, at the same address and with the same data, however often it refuses.

        `up` does not end for that: once an operator has freed the disk, or repaired the data as the hint says,
        the lab goes on by itself. `revive` blocks this loop until Redis has loaded its data, signals too: only
        the main thread may fork it, for the kernel ends it with its thread.
        """
        refusals = 0
        while True:
            try:
                if redis.revive():
                    self._announce("Redis had died; it is started again")
                self._refusal, refusals = None, 0
            except (Unavailable, OSError) as problem:
                refusals += 1
                self._refuse(problem)
            await asyncio.sleep(REDIS_BACKOFF.delay(refusals) if refusals else REDIS_LOOK_S)

    async def _end_silent(self, redis: EmbeddedRedis) -> None:
        """Kill a Redis that gives no answer for `silent_s`; as in state.pulse, silence is counted in looks."""
        silent_s = self.plan.settings.silent_s
        every_s = silent_s / LOOKS
        server, left = redis.pid, LOOKS
        while True:
            heard, _ = await asyncio.gather(
                asyncio.to_thread(redis.is_heard, every_s), asyncio.sleep(every_s)
            )
            if heard or redis.pid != server:
                server, left = redis.pid, LOOKS
                continue
            left -= 1
            if left == 0:
                self._announce(f"Redis gave no answer for {silent_s:g} s: killed")
                redis.kill()

    def _refuse(self, problem: Unavailable | OSError) -> None:
        """Tell a reason once, not at every attempt."""
        if not isinstance(problem, Unavailable):
            problem = Unavailable(f"Redis cannot be started: {problem}")
        if self._refusal is None or self._refusal.detail != problem.detail:
            self._announce(f"Redis died and does not start again; trying on. {problem.detail}")
            if problem.hint:
                self._announce(f"  -> {problem.hint}")
        self._refusal = problem

    async def until_ready(self) -> None:
        """Wait until the web process answers and every process has said that it is alive.

        Raises:
            Unavailable: not within two minutes.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + READY_S
        missing = "the web process"
        async with (
            httpx.AsyncClient(base_url=self.url, timeout=5.0, trust_env=False) as http,
            connected(self.plan.settings) as client,
        ):
            presence = Presence(client)
            while not self.stop.is_set():
                with contextlib.suppress(httpx.HTTPError, Unavailable):
                    if (await http.get("/readyz")).is_success:
                        missing = self._missing(await presence.alive(self.plan.settings.stale_s))
                        if not missing:
                            return
                if loop.time() > give_up:
                    raise Unavailable(
                        f"{missing} did not become ready within {READY_S:.0f} s",
                        hint=f"the logs are in {self.plan.settings.data_dir / 'logs'}",
                    )
                await asyncio.sleep(0.1)

    def _missing(self, alive: Sequence[Process]) -> str:
        found = Counter(p.facts["kind"] for p in alive)
        wanted = dict.fromkeys(KINDS, 1)
        if self.plan.repo is not None:
            slots = sum(p.facts["slots"] for p in alive if p.facts["kind"] == "supervisor")
            wanted |= {"supervisor": 1, "keeper": slots}
        return ", ".join(kind for kind, count in wanted.items() if found[kind] < count)


def specs(plan: Plan) -> list[ProcessSpec]:
    """web, events, clock, and where there is a repository the workers' supervisor."""
    settings = plan.settings
    env = own_environment() | {
        "NIGHTJAR_DATA": str(settings.data_dir),
        "NIGHTJAR_LAB": settings.lab,
        "NIGHTJAR_PORT": str(settings.port),
    }
    python = (sys.executable, "-P", "-m")
    silent_s = settings.silent_s
    found = [ProcessSpec(kind, (*python, f"triggers.{kind}"), env, 15.0, silent_s) for kind in KINDS]
    if plan.repo is not None:
        argv = [*python, "workers.supervisor", "--repo", str(plan.repo), "--gpu", plan.gpu]
        argv += ["--cpu", str(plan.cpu)] if plan.cpu is not None else []
        argv += ["--command", shlex.join(shlex.split(plan.command))] if plan.command else []
        env = env | settings.worker_environment
        found.append(ProcessSpec("worker", tuple(argv), env, float("inf"), silent_s))
    return found


async def check_redis(settings: Settings) -> None:
    """Refuse a Redis that would refuse every process, before any is started; bring an older lab forward.

    Raises:
        Unavailable: it wants another password, has another schema, or does not answer for half a minute.
        Invalid: the web process would refuse to listen.
    """
    async with connected(settings) as lab:
        await until_ready(lab, settings)
        await check_bind(settings, Tokens(lab))


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[Client]:
    """The lab's Redis."""
    lab = Client(settings.lab, redis_url(settings), timeout_s=settings.redis_timeout_s)
    try:
        yield lab
    finally:
        await lab.close()


def local_url(settings: Settings) -> str:
    """Where this machine reaches the web process."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "localhost") else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def check_port(settings: Settings) -> None:
    """Refuse a port that is taken, before anything is started.

    Raises:
        Conflict: somebody listens there.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as problem:
            raise Conflict(
                f"port {settings.port} is taken",
                hint="another lab may be running (./nightjar status); else choose one with --port",
            ) from problem


def free_port(wanted: int) -> int:
    """`wanted` if nobody listens there, else any free port of the loopback interface."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
    raise Unavailable("no loopback port is free", hint="close some programs")
