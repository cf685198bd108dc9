"""The keeper of one GPU: registers it, sends heartbeats with its health, cleans up after dead runs.

`python -P -m workers.keeper SLOT`
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import psutil

from functions.kernel.git import repository_head
from functions.kernel.process.alive import beating
from functions.kernel.process.forking import Threads
from functions.kernel.process.interpreter import find_interpreter, packages_of
from functions.kernel.process.logs import start_logging
from functions.kernel.process.process_identity import birth_name, boot_id, is_alive
from functions.kernel.process.running import ended, exit_with, started
from functions.kernel.process.supervision import ProcessGroup, ProcessSpec, stopping_on_signals
from state.client_settings import host_name
from state.errors import Conflict, Invalid, NightjarError, NotFound, Unavailable
from state.records import Gpu
from state.refusals import no_gpu
from state.settings import Settings
from workers import asker
from workers import gpu as redis_runs
from workers.attempt.processes import Orphans, StoppedProcesses, kill_all
from workers.attempt.usage import free_mb, remove_tree
from workers.attempt.worktree import checkouts_in
from workers.lab_client import HANDED_IN, RemoteLab, Spool, announce, calling, found, spool_of, until
from workers.slot import Device, HealthSampler, Slot, memory_came_back

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
LOOKS_PER_HEARTBEAT = 5
MEMORY_PATIENCE_S = 2.0
"""Short, because heartbeats wait for it, and each heartbeat checks again."""


@dataclass
class Keeper:
    lab: RemoteLab
    spool: Spool
    """Results of the slot that the lab has not taken yet."""
    slot: Slot
    settings: Settings
    group: ProcessGroup
    sampler: HealthSampler
    end_orphans: Callable[[], bool]
    """See Orphans.end."""
    name: str = field(default_factory=lambda: birth_name(host_name(), os.getpid()))

    def __post_init__(self) -> None:
        self._stopped = StoppedProcesses(self.settings.silent_s)
        self._told = ""

    @property
    def gpu_id(self) -> str:
        return self.slot.gpu_id

    @property
    def device(self) -> Device:
        return self.slot.device

    async def find(self) -> Gpu | None:
        """The GPU as the lab knows it; None: it is not in the pool."""
        try:
            shown = (await self.lab.call("gpu::get", {"gpu_id": self.gpu_id}))["worker"]
        except NotFound:
            return None
        return Gpu.model_validate({name: shown[name] for name in KNOWN})

    async def register(self) -> bool:
        """Add the GPU to the pool; False if another keeper serves it, or an earlier run is left on it."""
        gpu = await self.find()
        if self._is_served_by_another(gpu):
            self._tell(f"another worker serves {self.gpu_id}: waiting until it ends")
            return False
        in_use = gpu is not None and gpu.runner is not None and is_alive(gpu.runner, host_name())
        if not in_use and not await self.is_empty(gpu):
            self._tell(f"{self.gpu_id} stays out of the pool: an earlier run has left processes or memory")
            return False
        request = {
            "gpu_id": self.gpu_id,
            "gpu_index": self.device.index,
            "gpu_name": self.device.name,
            "vram_mb": float(self.device.vram_mb),
            "uuid": self.device.uuid,
            "host": host_name(),
            "boot_id": boot_id(),
            "labels": {"kind": self.device.kind, "isolation": self.slot.tier}
            | ({"driver": self.device.driver} if self.device.driver else {}),
            "scripts": list(self.slot.scripts),
            "environment": await self._environment(),
            "transport": "http" if self.slot.remote else "redis",
            "keeper": self.name,
            "replaced": gpu.keeper if gpu is not None else None,
        }
        try:
            await self.lab.call("pool::register_gpu", request)
        except Conflict:
            if not self._is_served_by_another(await self.find()):
                raise
            return False  # the other keeper was quicker; the next try logs it
        return True

    async def _environment(self) -> list[str]:
        """The Python that trains here, and its packages; empty where it does not run."""
        with contextlib.suppress(Invalid):
            python = self.slot.python or (await find_interpreter(self.slot.repo, os.environ)).path
            return await asyncio.to_thread(packages_of, python, os.environ)
        return []

    def _is_served_by_another(self, gpu: Gpu | None) -> bool:
        if gpu is None or gpu.keeper in (None, self.name) or gpu.offline:
            return False
        return is_alive(gpu.keeper, host_name())

    def _tell(self, problem: str) -> None:
        """Log a reason that keeps the GPU out of the pool, once."""
        if problem != self._told:
            log.error("%s", problem)
        self._told = problem

    async def announce(self) -> None:
        """Show this keeper among the lab's processes."""
        head = await asyncio.to_thread(repository_head, self.slot.repo)
        await announce(self.lab, "keeper", gpu_id=self.gpu_id, repo=str(self.slot.repo), repository_head=head)

    async def beat(self) -> None:
        """One heartbeat with the newest sample."""
        await self.announce()
        sample = asdict(await self.sampler.sample(self.device))
        health = {k: v for k, v in sample.items() if isinstance(v, str | int | float) and v != ""}
        health |= await asyncio.to_thread(self._disk)
        await asyncio.to_thread(self.slot.kept(self.settings).expire)
        try:
            answer = await self.lab.call("pool::heartbeat", {"gpu_id": self.gpu_id, "health": health})
            if answer["action"] == "prove":
                await self.prove()
            await self.remove_leftovers()
        except NotFound:
            log.warning("%s is not in the pool any more: registering again", self.gpu_id)
            await self.register()

    async def remove_leftovers(self) -> None:
        """Remove the checkouts of ended leases, left by killed processes."""
        left = await asyncio.to_thread(checkouts_in, self.slot.work_dir(self.settings))
        if not left or (gpu := await self.find()) is None:
            return
        for fence, folder in left:
            if not gpu.unproven and (gpu.holder is None or fence != gpu.fence):
                await asyncio.to_thread(remove_tree, folder)

    async def look(self) -> None:
        """Hand in what a dead process has left: its result, else its experiment."""
        gpu = await self.find()
        if gpu is None or gpu.runner is None or not is_alive(gpu.runner, host_name()):
            await self.spool.send_all(self.lab.call, _log_late)
        if (dead := await self._held_by_the_dead()) is None:
            return
        # read again: the run may just have ended well, and another may hold the GPU now
        gpu = await self._held_by_the_dead()
        if gpu is not None and gpu.fence == dead.fence:
            await self.give_back(gpu, "its worker process died")

    async def _held_by_the_dead(self) -> Gpu | None:
        gpu = await self.find()
        if gpu is None or gpu.holder is None or gpu.runner is None or is_alive(gpu.runner, host_name()):
            return None
        return gpu

    def end_stopped(self) -> None:
        """Kill processes below the RQ worker that have been stopped for too long."""
        for pid in self._stopped.end(self.group.pids.values(), time.monotonic()):
            silent_s = self.settings.silent_s
            log.warning("%s: process %d was stopped for %g s: killed", self.gpu_id, pid, silent_s)

    async def prove(self) -> None:
        """After a broken lease: kill the run, then tell the pool that the GPU is empty.

        If the run has proved that itself meanwhile, another one may have begun.
        """
        gpu = await self.find()
        if gpu is None:
            raise no_gpu(self.gpu_id)
        if not gpu.unproven:
            return
        self.kill_horses()
        if gpu.holder is None:
            await self.give_back(gpu, "proven empty")

    async def give_back(self, gpu: Gpu, reason: str) -> None:
        """Give the experiment back to the queue, and this GPU to the pool once it is empty."""
        proven = await self.is_empty(gpu)
        if not proven:
            log.error("%s is not lent: its last run has left processes or memory", self.gpu_id)
            if gpu.holder is None:
                return
        answer = await self.lab.call(
            "pool::give_back", {"gpu_id": self.gpu_id, "fence": gpu.fence, "reason": reason, "proven": proven}
        )
        log.warning("%s: %s; %s is %s", self.gpu_id, reason, gpu.holder, answer["experiment_status"])

    async def is_empty(self, gpu: Gpu | None) -> bool:
        """Kill every process of any attempt on this GPU; True if none is left and its memory is free."""
        if not await asyncio.to_thread(self.end_orphans):
            return False
        if not await asyncio.to_thread(kill_all, f"{self.slot.mark(self.settings)}/{self.gpu_id}"):
            return False
        if gpu is None or gpu.boot_id != boot_id():  # a reboot empties the GPU's memory
            return True
        return await memory_came_back(self.sampler, self.device, gpu.footprint, patience_s=MEMORY_PATIENCE_S)

    def _disk(self) -> dict[str, str | float]:
        try:
            return {"disk_free_mb": free_mb(self.slot.work_dir(self.settings))}
        except OSError as error:
            return {"error": f"the disk of its work folder cannot be read: {error}"}

    def kill_horses(self) -> None:
        """Kill RQ's horses on this GPU, whose lease is broken."""
        for pid in self.group.pids.values():
            with contextlib.suppress(psutil.Error):
                for horse in psutil.Process(pid).children():
                    horse.kill()


def _log_late(name: str, _request: Mapping[str, Any], answer: Mapping[str, Any] | NightjarError) -> None:
    if isinstance(answer, NightjarError):
        log.info("%s was not taken: %s", name, answer.detail)
    else:
        log.info("%s was handed in late: %s", name, answer["status"])


def worker_of_runs(slot: Slot, silent_s: float) -> ProcessSpec:
    """The child process that takes the runs of a slot. Before it ends, its run may finish, without a time limit."""
    module, name, main = (
        ("workers.asker", "asker", asker.main) if slot.remote else ("workers.gpu", "rq", redis_runs.work)
    )
    argument = slot.model_dump_json()
    name, argv = f"{name}-{slot.gpu_id.replace(':', '-')}", started(module, argument)
    return ProcessSpec(name, argv, None, math.inf, silent_s, partial(main, argument))


async def keep(slot: Slot, settings: Settings) -> None:
    """Keep one GPU in the pool until SIGTERM; then let its run finish and deregister it."""
    threads, parent, orphans = Threads(), os.getppid(), Orphans()
    group = ProcessGroup([worker_of_runs(slot, settings.silent_s)], settings.data_dir / "logs", log.warning)

    with stopping_on_signals(group) as stop:
        async with (
            beating(),
            calling(await found(settings, remote=slot.remote), CALLED) as lab,
            HealthSampler() as sampler,
        ):
            keeper = Keeper(lab, spool_of(slot, settings), slot, settings, group, sampler, orphans.end)
            if not await _registered(keeper, stop):
                return
            threads.end()
            await group.start()
            watching = asyncio.create_task(_watch(keeper), name="watch")
            try:
                await group.run_until(stop, watching)
                if os.getppid() != parent:
                    group.force()  # the supervisor was killed: do not wait for the run
                await _leave(keeper)
                await group.drain()
                await asyncio.to_thread(orphans.end_all, [pid for pid in (sampler.pid,) if pid is not None])
                await keeper.look()
                await _sign_off(keeper)
            finally:
                await ended(watching)


async def _registered(keeper: Keeper, stop: asyncio.Event) -> bool:
    """Register as soon as the GPU is empty; False if stopped before."""
    while not stop.is_set():
        await keeper.announce()
        if await keeper.register():
            return True
        await until(stop, keeper.settings.heartbeat_s)
    return False


async def _watch(keeper: Keeper) -> None:
    """Send heartbeats, and look at the run between them."""
    pause = keeper.settings.heartbeat_s / LOOKS_PER_HEARTBEAT
    nth = 0
    while True:
        try:
            keeper.end_stopped()
            await asyncio.to_thread(keeper.end_orphans)
            if nth % LOOKS_PER_HEARTBEAT == 0:
                await keeper.beat()
            await keeper.look()
        except Unavailable as problem:
            log.warning("%s: %s", keeper.gpu_id, problem.detail)
        except Exception:  # without this loop the GPU would be lost to the pool
            log.exception("%s: watching it failed; going on", keeper.gpu_id)
        nth += 1
        await asyncio.sleep(pause)


async def _leave(keeper: Keeper) -> None:
    """Take no new runs."""
    with contextlib.suppress(NightjarError):
        await keeper.lab.call("pool::leave", {"gpu_id": keeper.gpu_id, "keeper": keeper.name})


async def _sign_off(keeper: Keeper) -> None:
    """Take the GPU out of the pool."""
    await keeper.lab.call("pool::leave", {"gpu_id": keeper.gpu_id, "keeper": keeper.name, "ended": True})
    await announce(keeper.lab, "keeper", ended=True)


def main(argument: str) -> int:
    settings = Settings()
    start_logging(settings, "keeper")
    try:
        asyncio.run(keep(Slot.model_validate_json(argument), settings))
    except NightjarError as problem:
        return exit_with(problem)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
