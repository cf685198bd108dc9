"""A GPU is empty when its memory is back: at once, late, never, or not to be told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from state.records import Footprint
from tests.workers.drivers import GPU, Driver
from workers.attempt.job import Unfit
from workers.slot import HealthSampler, look_until, memory_came_back

pytestmark = pytest.mark.process

BEFORE = Footprint(used_mb=100.0, processes={})
GONE = 2**22 + 1
"""No process has this id: it is over the kernel's largest."""


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


@pytest.fixture
async def sampler(driver: Driver) -> AsyncIterator[HealthSampler]:
    async with HealthSampler(helper=driver.command, timeout_s=0.5, start_timeout_s=60) as found:
        yield found


async def came_back(
    sampler: HealthSampler, before: Footprint | None = BEFORE, *, patience_s: float = 0.3
) -> bool:
    return await memory_came_back(sampler, GPU, before, patience_s=patience_s)


async def test_memory_that_comes_back_late_is_waited_for(driver: Driver, sampler: HealthSampler) -> None:
    driver.says(memory_used_mb=700.0, processes={GONE: 600.0})
    waiting = asyncio.create_task(came_back(sampler, patience_s=60))
    await asyncio.sleep(0.5)
    assert not waiting.done()

    driver.says(memory_used_mb=100.0, processes={})

    assert await waiting


async def test_what_another_tenant_takes_meanwhile_is_not_held_against_the_run(
    driver: Driver, sampler: HealthSampler
) -> None:
    living = os.getppid()
    driver.says(memory_used_mb=9000.0, processes={living: 8900.0})

    assert await came_back(sampler)


@pytest.mark.parametrize("said", [{"error": "GPU is lost"}, {"temperature_c": 40.0}])
async def test_a_driver_that_tells_nothing_of_its_memory_makes_the_gpu_unfit(
    driver: Driver, sampler: HealthSampler, said: dict[str, object]
) -> None:
    driver.says(**said)

    assert isinstance(await look_until(sampler, GPU, patience_s=0.0), Unfit)
