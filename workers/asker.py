"""Takes the runs of one slot over HTTP: asks for the next one, has it trained in a process of its own, asks again.

`python -P -m workers.asker SLOT`
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from typing import Any

import httpx

from functions.kernel.process.alive import beating
from functions.kernel.process.logs import start_logging
from functions.kernel.process.remote import remote_of
from functions.kernel.process.running import ended, exit_with, started, stop_signals
from state.errors import NightjarError
from state.settings import Settings
from workers.lab_client import RemoteLab, calling, patiently
from workers.slot import Slot

log = logging.getLogger(__name__)

WAIT_S = 45.0
"""Longest wait of one request for the next run. Proxies cut connections that are silent for a minute."""


class Asker:
    """The loop of one slot."""

    def __init__(self, lab: RemoteLab, slot: Slot) -> None:
        self._lab = lab
        self._slot = slot
        self._standby: Process | None = None
        """The process for the next run, which has done its imports."""

    async def go_on(self, stop: asyncio.Event) -> None:
        """Train runs until it is stopped; a begun run is finished."""
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                self._standby = await self._alive()
                work = await patiently(lambda: self._next(stopping), stop, log.warning, NightjarError)
                if work is not None:
                    await self._train(work)
        finally:
            stopping.cancel()
            await self._dismiss()

    async def _next(self, stopping: asyncio.Future[Any]) -> Mapping[str, Any] | None:
        """Wait for the next run; None: there is none yet, or the worker is stopped."""
        asked = {"gpu_id": self._slot.gpu_id, "timeout": WAIT_S}
        timeout = httpx.Timeout(WAIT_S + 15.0, connect=10.0)
        asking = asyncio.create_task(self._lab.call("pool::next", asked, timeout=timeout))
        await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            await ended(asking)
            return None
        work: Mapping[str, Any] | None = asking.result()["work"]
        return work

    async def _train(self, work: Mapping[str, Any]) -> None:
        trainer, self._standby = await self._alive(), None
        assert trainer.stdin is not None
        with contextlib.suppress(ConnectionError):  # it died: the lab hands the run out again
            trainer.stdin.write(json.dumps(work).encode() + b"\n")
            await trainer.stdin.drain()
        self._standby = await self._start()
        status = await trainer.wait()
        if status != 0:
            log.error("the process of %s ended with %d", work["experiment_id"], status)

    async def _alive(self) -> Process:
        if self._standby is not None and self._standby.returncode is None:
            return self._standby
        return await self._start()

    async def _start(self) -> Process:
        argv = started("workers.trainer", self._slot.model_dump_json(), str(os.getpid()))
        return await asyncio.create_subprocess_exec(*argv, stdin=PIPE)

    async def _dismiss(self) -> None:
        """End the waiting process by closing its standard input."""
        if self._standby is not None and self._standby.stdin is not None:
            self._standby.stdin.close()
            await self._standby.wait()


async def ask(slot: Slot, settings: Settings) -> None:
    """Take runs until a signal; then finish the present one."""
    stop = stop_signals()
    async with beating(), calling(remote_of(settings.data_dir), ("pool::next",)) as lab:
        await Asker(lab, slot).go_on(stop)


def main(argument: str) -> int:
    settings = Settings()
    start_logging(settings, "asker")
    try:
        asyncio.run(ask(Slot.model_validate_json(argument), settings))
    except NightjarError as problem:
        return exit_with(problem)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
