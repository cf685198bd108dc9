"""A keeper's calls to its lab: through the lab's Redis, or over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from functions.process.alive import beating
from functions.process.lifecycle import Process, opened
from functions.process.remote import remote_of
from state.errors import NotFound
from state.pool import Pool
from state.records import Gpu
from state.settings import Settings
from workers.remote.client import RemoteLab, calling
from workers.remote.spool import Spool, spool_of
from workers.slot import Slot

CALLED = ("pool::register_gpu", "pool::heartbeat", "pool::give_back", "pool::leave")
READ = "gpu::get"
KNOWN = {
    *("gpu_id", "gpu_index", "gpu_name", "vram_mb", "boot_id", "keeper", "offline"),
    *("holder", "attempt", "fence", "runner", "footprint", "unproven"),
}
"""Fields of a GPU that a keeper reads."""


class LabClient(Protocol):
    """The calls that a keeper makes."""

    @property
    def identity(self) -> str:
        """First part of the labels of all runs here. No other lab's worker on this machine has the same."""
        ...

    async def find(self, gpu_id: str) -> Gpu | None:
        """The GPU as the pool has it, or None."""
        ...

    async def call(self, function: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Call one of `CALLED`."""
        ...

    def owes(self, gpu: Gpu) -> bool:
        """Whether the result of the run that holds the GPU waits here for the lab."""
        ...


class RedisLabClient:
    """For a process with access to the lab's Redis."""

    def __init__(self, process: Process, gpu_id: str) -> None:
        self._process = process
        self._pool = Pool(process.lab)
        self._name = f"keeper:{gpu_id}"

    @property
    def identity(self) -> str:
        """See LabClient."""
        return self._process.lab.identity

    async def find(self, gpu_id: str) -> Gpu | None:
        """See LabClient."""
        return await self._pool.find(gpu_id)

    async def call(self, function: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """See LabClient."""
        return await self._process.invoker.system(self._name).invoke(function, request)

    def owes(self, gpu: Gpu) -> bool:
        """See LabClient: a run hands its result in itself."""
        return False


class HttpLabClient:
    """For a worker that reaches the lab by HTTP alone."""

    def __init__(self, lab: RemoteLab, spool: Spool) -> None:
        self._lab = lab
        self._spool = spool

    @property
    def identity(self) -> str:
        """See LabClient."""
        return self._lab.remote.name

    async def find(self, gpu_id: str) -> Gpu | None:
        """See LabClient."""
        try:
            shown = (await self._lab.call(READ, {"gpu_id": gpu_id}))["worker"]
        except NotFound:
            return None
        return Gpu.model_validate({name: shown[name] for name in KNOWN})

    async def call(self, function: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """See LabClient."""
        return await self._lab.call(function, request)

    def owes(self, gpu: Gpu) -> bool:
        """See LabClient."""
        return gpu.holder is not None and self._spool.has(gpu.holder, gpu.attempt, gpu.fence)


@asynccontextmanager
async def reached(
    slot: Slot, settings: Settings, facts: Callable[[], Mapping[str, Any]]
) -> AsyncIterator[LabClient]:
    """The lab of this slot. `facts`: what the keeper reports in the lab's list of processes."""
    if slot.remote:
        async with beating(), calling(remote_of(settings.data_dir), (*CALLED, READ)) as lab:
            yield HttpLabClient(lab, spool_of(slot, settings))
        return
    async with opened("keeper", settings, worker=True, functions=CALLED, facts=facts) as process:
        yield RedisLabClient(process, slot.gpu_id)
