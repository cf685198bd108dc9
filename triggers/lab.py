"""A whole lab on one machine: its Redis and its processes, started together and drained together."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from functions.formats.program_document import charter_of
from functions.kernel.authoring import may_write
from functions.kernel.own import load
from functions.kernel.process.readiness import connected, until_ready
from functions.kernel.process.running import started
from functions.kernel.process.supervision import (
    ProcessGroup,
    ProcessSpec,
    RestartBackoff,
    stopping_on_signals,
)
from functions.kernel.table import table
from functions.swarm.dimensions import swarm_dimensions
from state.child_heartbeat import LOOKS
from state.client_settings import host_name
from state.embedded import EmbeddedRedis, broker_url, make_data_dir
from state.errors import Unavailable
from state.presence import LiveProcess, Presence
from state.programs import charter_file, read_charter
from state.settings import Settings, own_environment
from state.tokens import Tokens
from triggers import clock, events, web
from triggers.http.hosts import check_bind
from triggers.ports import check_port, local_url

KINDS: Mapping[str, Callable[..., int]] = {"web": web.main, "events": events.main, "clock": clock.main}
"""The processes of every lab, with their main functions."""
READY_S = 120.0
LOOK_S = 0.05
WITHOUT_REDIS_S = 30.0
"""Seconds for processes to end in order while Redis does not come back."""
REDIS_LOOK_S = 0.5
BACKOFF = RestartBackoff(first_s=1.0, most_s=30.0)


@dataclass(frozen=True)
class LabParts:
    """The processes of a lab, and the slots of its workers."""

    settings: Settings
    repo: Path | None
    """Without one there is no worker."""
    cpu: int | None = None
    gpu: str = "all"
    command: str | None = None
    runs: Sequence[str] = ()
    """Further options of the worker, such as its Python and isolation."""
    web: int = 1
    """Web processes. Several share the port."""

    def specs(self) -> list[ProcessSpec]:
        """web, events, clock; pi for a language model; the supervisor for a repository. Raises Invalid: no key."""
        settings = self.settings
        env = own_environment() | {
            "NIGHTJAR_DATA": str(settings.data_dir),
            "NIGHTJAR_LAB": settings.lab,
            "NIGHTJAR_PORT": str(settings.port),
        }
        silent_s = settings.silent_s
        clone = {} if self.repo is None else {"NIGHTJAR_CLONE": str(settings.clone or self.repo)}
        if settings.functions is not None:
            clone["NIGHTJAR_FUNCTIONS"] = str(settings.functions.expanduser().absolute())
        shared = ("--shared",) if self.web > 1 else ()
        webs = ["web", *(f"web-{nth}" for nth in range(2, self.web + 1))]
        kinds = [*((name, "web", shared) for name in webs), ("events", "events", ()), ("clock", "clock", ())]
        found = [
            ProcessSpec(
                name,
                started(f"triggers.{kind}", *words),
                env | clone,
                drain_s=15.0,
                silent_s=silent_s,
                main=partial(KINDS[kind], *words),
            )
            for name, kind, words in kinds
        ]
        if may_write(settings):
            found.append(ProcessSpec("pi", started("workers.pi"), env | clone, 15.0, silent_s, _of_author))
        if self.repo is not None:
            argv = ["--repo", str(self.repo), "--gpu", self.gpu]
            argv += ["--cpu", str(self.cpu)] if self.cpu is not None else []
            argv += ["--command", shlex.join(shlex.split(self.command))] if self.command else []
            argv += self.runs
            env = env | settings.worker_environment
            main = partial(_of_workers, argv)
            command = started("workers.supervisor", *argv)
            found.append(ProcessSpec("worker", command, env, float("inf"), silent_s, main))
        return found


def _of_workers(argv: Sequence[str]) -> int:
    """Run the workers' supervisor. Only its own process imports workers."""
    return int(import_module("workers.supervisor").run(*argv))


def _of_author() -> int:
    return int(import_module("workers.pi").main())


class OwnRedis:
    """Keeps the Redis that `up` has started alive: restarts it when it dies, kills it when it is silent.

    Without a Redis of its own it does nothing.
    """

    def __init__(self, redis: EmbeddedRedis | None, silent_s: float, announce: Callable[[str], None]) -> None:
        self._redis = redis
        self._silent_s = silent_s
        self._announce = announce
        self.refusal: Unavailable | None = None
        """Error of the last restart; None while Redis runs."""

    @property
    def pid(self) -> int | None:
        return self._redis.pid if self._redis is not None else None

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[list[asyncio.Task[None]]]:
        """Keep Redis alive within this context. The yielded tasks end only by a fault."""
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
        """Restart a dead Redis at the same address with the same data, and retry for ever.

        Once an operator has freed the disk, or repaired the data as the hint says, the lab goes on by itself.
        `revive` blocks this loop, signals too, until Redis has loaded its data: only the main thread may fork it,
        because the kernel ends it with its thread.
        """
        refusals = 0
        while True:
            try:
                if redis.revive():
                    self._announce("Redis had died; it is started again")
                    self.refusal, refusals = None, 0
            except (Unavailable, OSError) as problem:
                refusals += 1
                self._refuse(problem)
            await asyncio.sleep(BACKOFF.delay(refusals) if refusals else REDIS_LOOK_S)

    async def _end_silent(self, redis: EmbeddedRedis) -> None:
        """Kill a Redis that does not answer for `silent_s`, counted in checks as in state.child_heartbeat."""
        every_s = self._silent_s / LOOKS
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
                self._announce(f"Redis gave no answer for {self._silent_s:g} s: killed")
                redis.kill()

    def _refuse(self, problem: Unavailable | OSError) -> None:
        """Announce a reason once, not at every attempt."""
        if not isinstance(problem, Unavailable):
            problem = Unavailable(f"Redis cannot be started: {problem}")
        if self.refusal is None or self.refusal.detail != problem.detail:
            self._announce(f"Redis died and does not start again; trying on. {problem.detail}")
            if problem.hint:
                self._announce(f"  -> {problem.hint}")
        self.refusal = problem


class LocalLab:
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
        """Facts that this machine's worker reports, once it is ready."""
        self._redis = OwnRedis(redis, parts.settings.silent_s, announce)
        self._group = group

    @property
    def pids(self) -> dict[str, int]:
        redis = self._redis.pid
        return self._group.pids | ({} if redis is None else {"redis": redis})

    @property
    def own_settings(self) -> Settings:
        """Settings with which commands reach this lab as its operator."""
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
        load(settings)
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
        """Keep everything running until it is stopped."""
        async with self._redis.kept() as keeping:
            await self._group.run_until(self.stop, *keeping)

    async def drain(self) -> None:
        """Let every process end in order; workers first finish their runs.

        Without Redis they cannot: they are killed after a while, and the next `up` restarts their runs.

        Raises:
            Unavailable: they were, for this reason.
        """
        time = asyncio.get_running_loop().time
        async with self._redis.kept():
            draining = asyncio.create_task(self._group.drain(), name="drain")
            give_up = time() + WITHOUT_REDIS_S
            while not draining.done():
                await asyncio.wait([draining], timeout=REDIS_LOOK_S)
                refusal = self._redis.refusal
                if refusal is None:
                    give_up = time() + WITHOUT_REDIS_S
                elif time() > give_up:
                    self._group.force()
                    await draining
                    raise refusal
            await draining

    async def until_ready(self) -> None:
        """Wait until web answers and all processes are announced. Raises Unavailable: not within two minutes."""
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

    def _missing(self, alive: Sequence[LiveProcess]) -> str:
        found = Counter(p.facts["kind"] for p in alive)
        wanted = dict.fromkeys(KINDS, 1) | {"web": self.parts.web}
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
    """Check before any process starts that Redis will accept them.

    Raises:
        Unavailable: it wants another password, the lab has another layout, or does not answer for half a minute.
        Invalid: the web process would refuse to listen.
    """
    broker_url(settings)  # a Cluster without another Redis for RQ is refused
    async with connected(settings) as lab:
        await until_ready(lab, settings)
        await check_bind(settings, Tokens(lab))
