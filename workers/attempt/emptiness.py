"""Checks that a run has left nothing in its GPU's memory."""

from __future__ import annotations

import asyncio
import logging

import psutil

from functions.lanes import Unfit
from functions.rules.pool.health import MEMORY_TOLERANCE_MB, is_memory_back
from state.records import Footprint
from workers.device import Device, Sampler

_log = logging.getLogger(__name__)

_PAUSE_S = 0.25


async def look(sampler: Sampler, device: Device) -> Footprint | Unfit | None:
    """What the device's memory holds now; None for a CPU slot."""
    if device.uuid is None:
        return None
    health = await sampler.sample(device)
    if health.error is not None or health.memory_used_mb is None:
        return Unfit(health.error or "its driver does not say how much memory is in use")
    return Footprint(used_mb=health.memory_used_mb, processes=health.processes)


async def look_until(sampler: Sampler, device: Device, *, patience_s: float) -> Footprint | Unfit | None:
    """Look again until the driver answers, for at most `patience_s`."""
    give_up = asyncio.get_running_loop().time() + patience_s
    while isinstance(seen := await look(sampler, device), Unfit):
        if asyncio.get_running_loop().time() >= give_up:
            break
        await asyncio.sleep(_PAUSE_S)
    return seen


async def memory_came_back(
    sampler: Sampler,
    device: Device,
    before: Footprint | None,
    *,
    tolerance_mb: float = MEMORY_TOLERANCE_MB,
    patience_s: float,
) -> bool:
    """Whether the memory is as it was before the run; call it once all processes of the run have ended.

    Drivers free memory late, so it looks again for `patience_s`. No answer from the driver counts as no.
    """
    if before is None:
        return True
    give_up = asyncio.get_running_loop().time() + patience_s
    while True:
        now = await look(sampler, device)
        if isinstance(now, Footprint) and is_memory_back(
            before, now, strangers=_living(now), tolerance_mb=tolerance_mb
        ):
            return True
        if asyncio.get_running_loop().time() >= give_up:
            _log.error("the memory of %s did not come back: before %s, now %s", device.gpu_id, before, now)
            return False
        await asyncio.sleep(_PAUSE_S)


def _living(footprint: Footprint) -> set[int]:
    """Its processes that live here; the driver may also list ids of another pid namespace."""
    return {pid for pid in footprint.processes or {} if _lives(pid)}


def _lives(pid: int) -> bool:
    try:
        # not a zombie: its threads may still be in the driver and hold GPU memory
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
