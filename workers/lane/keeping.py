"""A keeper's calls to its lab."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

from functions.kernel.process.alive import beating, process_name
from state.errors import NightjarError, NotFound, Unavailable
from state.records import Gpu
from state.settings import Settings
from workers.lane.client import RemoteLab, calling, found
from workers.lane.spool import HANDED_IN, Spool, spool_of
from workers.slot import Slot

log = logging.getLogger(__name__)

CALLED = (
    *(
        "pool::register_gpu",
        "pool::heartbeat",
        "pool::give_back",
        "pool::leave",
        "pool::announce",
        "gpu::get",
    ),
    *HANDED_IN,
)
KNOWN = {
    *("gpu_id", "gpu_index", "gpu_name", "vram_mb", "boot_id", "keeper", "offline"),
    *("holder", "attempt", "fence", "runner", "footprint", "unproven"),
}
"""Fields of a GPU that a keeper reads."""


class LabClient:
    """The lab, and the results of a slot that it has not taken yet."""

    def __init__(self, lab: RemoteLab, spool: Spool) -> None:
        self._lab = lab
        self._spool = spool

    async def find(self, gpu_id: str) -> Gpu | None:
        try:
            shown = (await self._lab.call("gpu::get", {"gpu_id": gpu_id}))["worker"]
        except NotFound:
            return None
        return Gpu.model_validate({name: shown[name] for name in KNOWN})

    async def call(self, function: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return await self._lab.call(function, request)

    async def announce(self, kind: Literal["keeper", "supervisor"], **facts: Any) -> None:
        """Show this process in the lab's list of processes for a minute."""
        await announce(self._lab, kind, **facts)

    async def hand_in(self) -> None:
        """Send the results that dead processes have left."""
        await self._spool.send_all(self._lab.call, _log_late)


def _log_late(name: str, _request: Mapping[str, Any], answer: Mapping[str, Any] | NightjarError) -> None:
    if isinstance(answer, NightjarError):
        log.info("%s came too late: %s", name, answer.detail)
    else:
        log.info("%s was handed in late: %s", name, answer["status"])


async def announce(lab: RemoteLab, kind: Literal["keeper", "supervisor"], **facts: Any) -> None:
    try:
        await lab.call("pool::announce", {"process": process_name(kind), **facts})
    except Unavailable:
        raise
    except NightjarError as problem:  # it works all the same
        log.warning("this process is not shown in the lab: %s", problem.detail)


@asynccontextmanager
async def reached(slot: Slot, settings: Settings) -> AsyncIterator[LabClient]:
    """The lab of this slot."""
    async with beating(), calling(await found(settings, remote=slot.remote), CALLED) as lab:
        yield LabClient(lab, spool_of(slot, settings))
