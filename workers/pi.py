"""The process of the lane `pi`, in which a language model writes texts. `python -P -m workers.pi`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from rq import SimpleWorker
from rq.exceptions import StopRequested
from rq.serializers import JSONSerializer
from rq.timeouts import TimerDeathPenalty

from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.process.redaction import hide
from functions.kernel.process.running import ended, run, stop_signals
from state.client import Lab
from state.embedded import broker_url
from state.errors import NightjarError
from state.programs import Pipelines, Programs
from state.rq_jobs import CheckedQueue, PiJob, pi_queue
from state.settings import Settings
from state.swarms import Swarms
from state.train_queue import broker, plainly
from workers.author.choosing import author_for

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

RQ_TTL_S = 17
"""Seconds until RQ counts a silent worker as gone. Its blocking reads, and so a shutdown, take 15 s less."""


@dataclass
class LaneCalls:
    """Calls of the lane's functions, one at a time. So work that is both queued and resumed is paid for once."""

    process: Process
    loop: asyncio.AbstractEventLoop
    under_way: set[Future[Any]] = field(default_factory=set)
    """Calls that RQ's thread waits for."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def call(self, function: str, payload: Mapping[str, Any]) -> BaseModel:
        """Call a function when no other call is running."""
        async with self._lock:
            caller = self.process.invoker.system("pi", "queue")
            return await self.process.invoker.call(function, payload, caller)

    def call_from_thread(self, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Call a function from RQ's thread, and wait for its answer."""
        future = asyncio.run_coroutine_threadsafe(self.call(function, payload), self.loop)
        self.under_way.add(future)
        try:
            return future.result().model_dump()
        except CancelledError:
            raise StopRequested from None
        finally:
            self.under_way.discard(future)


_calls: LaneCalls | None = None
"""The calls of this process; global, because RQ passes only a job's payload to `perform`."""


def perform(function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Run one job; RQ finds this function by its name."""
    if _calls is None:
        raise RuntimeError("this process serves no lab")
    return _calls.call_from_thread(function, payload)


class PiWorker(SimpleWorker):
    """RQ's worker in a thread beside the event loop. The process handles the signals."""

    death_penalty_class = TimerDeathPenalty
    max_connection_wait_time = 5.0
    is_stopping = False

    def _install_signal_handlers(self) -> None:
        """Does nothing: only the main thread can handle signals."""

    def _set_ip_address(self, connection: Redis) -> None:
        """Sets no address: RQ would read CLIENT LIST, which our Redis user may not."""
        connection.client_setname(self.name)
        self.ip_address = "unknown"

    def heartbeat(self, *given: Any, **named: Any) -> None:
        """RQ calls this before each blocking read and after each job."""
        if self.is_stopping:
            raise StopRequested
        super().heartbeat(*given, **named)


async def serve(settings: Settings) -> None:
    """Write until SIGTERM or SIGINT. Running work is then dropped, and asked for again later."""
    stop = stop_signals()
    author: str | None = None
    async with opened(
        "pi",
        settings,
        author=lambda lab, meters: author_for(settings, lab, meters),
        facts=lambda: {"author": author},
    ) as process:
        if process.author is None:
            await stop.wait()
            return
        author = process.author.name
        calls = LaneCalls(process, asyncio.get_running_loop())
        resuming = asyncio.create_task(resume(calls), name="resume")
        try:
            await _work(calls, settings, stop)
        finally:
            await ended(resuming)


async def resume(calls: LaneCalls) -> None:
    """Write what was asked for before this process started. The lab asks again for what fails, or drops it."""
    try:
        async for function, tag, number in _asked(calls.process.lab):
            await calls.call(function, {"tag": tag, "number": number})
    except NightjarError as problem:
        log.warning("earlier requests are not resumed: %s", problem.detail)


async def _asked(lab: Lab) -> AsyncIterator[tuple[str, str, int]]:
    """Functions of the lane, with the tag and the number to call them with."""
    programs, pipelines = Programs(lab), Pipelines(lab)
    for tag in await programs.asked():
        yield "program::write", tag, (await programs.due_facts(tag)).number
    for tag in await Swarms(lab).tags():
        draft = (await pipelines.read(tag))[0].draft
        if draft is not None and draft.state == "drafting":
            yield "pipeline::draft", tag, draft.number


async def _work(calls: LaneCalls, settings: Settings, stop: asyncio.Event) -> None:
    """Take jobs from the lane's queue until the process has to stop or the broker is gone."""
    global _calls
    _calls = calls
    worker = await asyncio.to_thread(rq_worker, settings)
    working = asyncio.create_task(asyncio.to_thread(worker.work, logging_level=settings.log_level))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    worker.is_stopping = True
    for future in list(calls.under_way):
        future.cancel()
    await working
    stopping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await stopping


def rq_worker(settings: Settings) -> PiWorker:
    """The RQ worker of the lane. Blocks. Raises Unavailable: the broker does not answer, or refuses."""
    url = broker_url(settings)
    hide(url)
    connection = broker(url)
    with plainly():
        return PiWorker(
            [pi_queue(settings.lab, connection)],
            name=f"pi-{os.getpid()}-{secrets.token_hex(4)}",
            connection=connection,
            job_class=PiJob,
            queue_class=CheckedQueue,
            log_job_description=False,
            serializer=JSONSerializer,
            worker_ttl=RQ_TTL_S,
        )


def main() -> int:
    return run("pi", serve)


if __name__ == "__main__":
    from workers import pi  # this module is `__main__` here; RQ imports `perform` by its real name

    sys.exit(pi.main())
