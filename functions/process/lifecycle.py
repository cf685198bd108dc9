"""What every process of Nightjar does: open the lab, provide the stores, say that it is alive, close."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psutil

from functions.contract import Lane
from functions.invoke import Invoker
from functions.plugins import Schedulers
from functions.process.logs import start_logging
from functions.process.meters import Meters
from functions.process.redaction import hide, scrubbed
from functions.process.tracing import Tracing, exporting
from functions.table import table
from state.answers import Answers
from state.backup import back_up
from state.client import SCHEMA, Lab
from state.embedded import broker_url, redis_url
from state.errors import NightjarError, Unavailable
from state.experiments import Experiments
from state.fitness import look, refuse
from state.migrations import migrate
from state.overview import Overviews
from state.policies import Policies
from state.pool import Pool
from state.presence import Presence
from state.pulse import Pulse
from state.receivers import Receivers
from state.reports import Reports
from state.schedules import Schedules
from state.settings import Settings, host_name
from state.snapshots import Snapshots
from state.stream import Stream
from state.tags import Strategies, Tags
from state.tallies import Tallies
from state.tokens import Tokens
from state.traces import Traces
from state.train_queue import TrainQueue
from state.wakeups import Wakeups
from state.webhooks import Webhooks

log = logging.getLogger(__name__)

_NAME = re.compile(r"\w+@(?P<host>[^:]+):(?P<pid>\d+)(/\d+)?")


@dataclass(frozen=True)
class Process:
    """One running process of the lab."""

    name: str
    settings: Settings
    lab: Lab
    invoker: Invoker
    stream: Stream
    answers: Answers
    presence: Presence
    wakeups: Wakeups
    meters: Meters
    tracing: Tracing
    schedules: Schedules
    tokens: Tokens


@asynccontextmanager
async def opened(
    kind: str,
    settings: Settings,
    *,
    lane: Lane = "web",
    worker: bool = False,
    extra: Callable[[Lab], Sequence[object]] | None = None,
    facts: Callable[[], Mapping[str, Any]] = dict,
) -> AsyncIterator[Process]:
    """Open the lab for a process of this kind; waits for Redis, and says all along that the process is alive.

    `extra` makes what the lane provides beside the stores, `facts` what the process says of itself: it is asked
    before each announcement, in a thread, so it may look things up. A `worker` is another user of Redis, who brings
    no lab forward to a newer schema.
    """
    url, broker = redis_url(settings, worker=worker), broker_url(settings, worker=worker)
    hide(url, broker)
    lab = Lab(settings.lab, url, timeout_s=settings.redis_timeout_s)
    train_queue = TrainQueue(settings.lab, broker, settings.redis_timeout_s)
    try:
        await until_ready(lab, None if worker else settings)
        process = _bound(kind, settings, lab, lane, [train_queue, *(extra(lab) if extra else ())])
        who = {"kind": kind, "pid": os.getpid(), "host": host_name(), "schema": SCHEMA}
        helpers = [
            asyncio.create_task(_stay_present(process, who, facts)),
            asyncio.create_task(process.wakeups.listen()),
        ]
        if (pulse := Pulse.inherited()) is not None:
            helpers.append(asyncio.create_task(pulse.from_loop()))
        try:
            yield process
        finally:
            await ended(*helpers)
            with contextlib.suppress(Unavailable):
                await process.presence.leave(process.name)
                await _hand_over(process)
            await asyncio.to_thread(process.tracing.close)
    finally:
        train_queue.close()
        await lab.close()


def _bound(kind: str, settings: Settings, lab: Lab, lane: Lane, extra: Sequence[object]) -> Process:
    wakeups, presence, stream, schedules = Wakeups(lab), Presence(lab), Stream(lab), Schedules(lab)
    tokens = Tokens(lab)
    stores: list[object] = [
        Tags(lab),
        Strategies(lab),
        Policies(lab),
        Experiments(lab),
        Reports(lab),
        Traces(lab),
        Pool(lab),
    ]
    stores += [Snapshots(lab), Overviews(lab), presence, stream, wakeups, schedules, tokens, settings, *extra]
    stores += [Schedulers(settings.plugin_names), Webhooks(lab), Receivers(private=settings.webhook_private)]
    name = f"{kind}@{host_name()}:{os.getpid()}"
    meters, tracing = Meters(kind), exporting(settings, name)
    return Process(
        name=name,
        settings=settings,
        lab=lab,
        invoker=Invoker(table(), stores, lane, meters=meters, tracing=tracing),
        stream=stream,
        answers=Answers(lab),
        presence=presence,
        wakeups=wakeups,
        meters=meters,
        tracing=tracing,
        schedules=schedules,
        tokens=tokens,
    )


def has_died(name: str) -> bool:
    """Whether a process, or one of its consumers (`<name>/<n>`), is known to be gone: no process here has its pid.

    A process of another host, or one with a reused pid, may be alive.
    """
    found = _NAME.fullmatch(name)
    return found is not None and found["host"] == host_name() and not psutil.pid_exists(int(found["pid"]))


async def _hand_over(process: Process) -> None:
    """Add our counts to the lab's; a web process shows its own, for as long as it lives."""
    if process.meters.kind != "web":
        await process.meters.hand_over(Tallies(process.lab))


async def ended(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until they have ended: before Python 3.12 `asyncio.wait_for` may swallow a cancellation."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.1)


async def until_ready(lab: Lab, settings: Settings | None = None, patience_s: float = 30.0) -> None:
    """Wait until Redis answers; what waiting cannot mend (a wrong password or schema) is told at once.

    With settings, a Redis that would lose the lab is refused before anything is written, and a lab of an earlier
    version is brought to this one's schema, by us or by another process.

    Raises:
        Unavailable: it does not answer within `patience_s`, or may not hold a lab.
    """
    give_up = time.monotonic() + patience_s
    while True:
        try:
            findings = look(await lab.facts()) if settings is not None else []
            refuse(findings)
            if settings is not None:
                await _up_to_date(lab, settings)
            await lab.check()
            for finding in findings:
                if finding.state == "warning":
                    log.warning("Redis: %s; %s", finding.found, finding.remedy)
            return
        except Unavailable as problem:
            if problem.fields.get("migrating"):
                give_up = time.monotonic() + patience_s  # it goes on, however long it takes
            if problem.retry_after is None or time.monotonic() > give_up:
                raise
            await asyncio.sleep(0.2)


async def _up_to_date(lab: Lab, settings: Settings) -> None:
    """Bring a lab of an earlier version to the present schema, after a backup into the data directory."""
    found = await lab.recognise()
    if found >= SCHEMA:
        return
    alive_s = 1.5 * settings.heartbeat_s
    file = settings.data_dir / "backups" / f"{lab.name}-{lab.identity}-schema-{found}.nightjar"

    async def save() -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():  # else it is whole, and older than a step that was broken off
            await back_up(lab, file, alive_s=alive_s)

    log.warning("bringing the lab %r from schema %d to %d; as it was: %s", lab.name, found, SCHEMA, file)
    await migrate(lab, found, alive_s=alive_s, before=save)


async def _stay_present(
    process: Process, who: Mapping[str, Any], facts: Callable[[], Mapping[str, Any]]
) -> None:
    while True:
        try:
            said = await asyncio.to_thread(facts)
            await process.presence.announce(process.name, {**who, **said})
            if reason := await process.lab.outlived():
                log.error("%s ends: %s", process.name, reason)
                os.kill(os.getpid(), signal.SIGTERM)  # drains; its supervisor starts the right version
                return
            await _hand_over(process)
        except Unavailable as problem:
            log.warning("cannot say that %s is alive: %s", process.name, problem.detail)
        except Exception:  # a process that works but fell silent would look dead for ever
            log.exception("cannot say that %s is alive", process.name)
        await asyncio.sleep(process.settings.heartbeat_s / 2)


def stop_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set; a second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def asked() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
    return stop


def run(kind: str, serve: Callable[[Settings], Coroutine[Any, Any, None]]) -> int:
    """Run a process of this kind to its end; answers its exit code."""
    settings = Settings()
    start_logging(settings, kind)
    try:
        asyncio.run(serve(settings))
    except NightjarError as problem:
        return exit_with(problem)
    return 0


def exit_with(problem: NightjarError) -> int:
    """Say what is wrong and what to do, without a traceback; answers the exit code."""
    print(f"nightjar: {scrubbed(problem.detail)}", file=sys.stderr)
    if problem.hint:
        print(f"  -> {scrubbed(problem.hint)}", file=sys.stderr)
    return 1
