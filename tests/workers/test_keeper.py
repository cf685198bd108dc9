"""The keeper of one GPU: what it survives, and when it stays out of the pool."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import workers.keeper
from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.process.running import ended
from functions.kernel.process.supervision import ProcessGroup
from state.pool import Pool
from state.records import Footprint, Gpu
from state.settings import Settings
from tests.conftest import http_client
from tests.lane import lab_over
from tests.workers.drivers import GPU, Driver
from workers.keeper import CALLED, Keeper, _registered, _sign_off, _watch
from workers.lab_client import Spool
from workers.slot import Device, HealthSampler, Slot

pytestmark = pytest.mark.process

CPU = Device("h:cpu0", index=0, name="cpu", vram_mb=0, uuid=None, driver=None, kind="cpu")


@pytest.fixture
async def process(settings: Settings) -> AsyncIterator[Process]:
    """A process with a heartbeat each second."""
    async with opened("web", settings.model_copy(update={"stale_s": 6.0})) as running:
        yield running


@asynccontextmanager
async def keeping(
    process: Process, folder: Path, device: Device, sampler: HealthSampler
) -> AsyncIterator[Keeper]:
    group = ProcessGroup([], folder / "logs", lambda line: None)
    slot = Slot(repo=Path("/nowhere"), device=device)
    async with sampler, http_client(process) as http:
        lab, spool = lab_over(http, CALLED), Spool(folder / "spool")
        yield Keeper(lab, spool, slot, process.settings, group, sampler, lambda: True)


@pytest.fixture
async def keeper(process: Process, tmp_path: Path) -> AsyncIterator[Keeper]:
    async with keeping(process, tmp_path, CPU, HealthSampler()) as found:
        yield found


@pytest.fixture
def pool(process: Process) -> Pool:
    return Pool(process.lab)


class KillAll:
    """Kills nothing, and finds the GPU as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, empty: bool) -> None:
        self.empty = empty
        self.asked = 0
        monkeypatch.setattr(workers.keeper, "kill_all", self)

    def __call__(self, stamp: str) -> bool:
        self.asked += 1
        return self.empty


async def eventually(what: Callable[[], bool], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.01)


async def test_a_gpu_with_processes_that_do_not_die_stays_out_of_the_pool_until_it_is_empty(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, pool: Pool
) -> None:
    kill_all = KillAll(monkeypatch, empty=False)
    registering = asyncio.create_task(_registered(keeper, asyncio.Event()))
    await eventually(lambda: kill_all.asked >= 3)

    assert await pool.find("h:cpu0") is None
    assert "h:cpu0 stays out of the pool" in caplog.text
    kill_all.empty = True

    assert await asyncio.wait_for(registering, 60)
    assert (await pool.get("h:cpu0")).status == "idle"


async def test_a_slot_that_another_worker_serves_is_waited_for_and_told_of_once(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, pool: Pool
) -> None:
    living = {keeper.name}
    monkeypatch.setattr(workers.keeper, "is_alive", lambda name, host: name in living)
    kill_all = KillAll(monkeypatch, empty=True)
    assert await keeper.register()
    kill_all.asked = 0
    other = replace(keeper, name="h:2:b")

    for _ in range(3):
        assert not await other.register()

    assert caplog.text.count("another worker serves h:cpu0") == 1
    assert kill_all.asked == 0, "what runs there is the other worker's"
    living.clear()
    assert await other.register()
    assert (await pool.get("h:cpu0")).keeper == "h:2:b"


async def test_watching_goes_on_after_any_fault(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    beats = 0

    async def faulty(self: Keeper) -> None:
        nonlocal beats
        beats += 1
        raise RuntimeError("the driver is ill")

    monkeypatch.setattr(Keeper, "beat", faulty)
    watching = asyncio.create_task(_watch(keeper))
    await eventually(lambda: beats >= 3 or watching.done())

    assert not watching.done()
    await ended(watching)
    assert "RuntimeError: the driver is ill" in caplog.text


async def test_a_gpu_that_is_removed_while_it_is_being_proven_registers_again(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, pool: Pool, process: Process
) -> None:
    KillAll(monkeypatch, empty=True)
    await keeper.register()

    call = keeper.lab.call

    async def removed_meanwhile(function: str, request: Mapping[str, Any]) -> dict[str, Any]:
        if function != "pool::heartbeat":
            return await call(function, request)
        invoker = process.invoker
        await invoker.call("pool::deregister", {"gpu_id": "h:cpu0"}, invoker.system("operator"))
        return {"action": "prove"}

    monkeypatch.setattr(keeper.lab, "call", removed_meanwhile)
    await keeper.beat()

    assert (await pool.get("h:cpu0")).status == "idle"


async def test_a_gpu_that_was_proven_while_the_heartbeat_was_answered_keeps_its_new_run(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, pool: Pool
) -> None:
    killed = KillAll(monkeypatch, empty=True)
    await keeper.register()
    killed.asked = 0
    monkeypatch.setattr(Keeper, "kill_horses", lambda self: pytest.fail("a new run was killed"))
    call = keeper.lab.call

    async def proven_meanwhile(function: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return await call(function, request) | ({"action": "prove"} if function == "pool::heartbeat" else {})

    monkeypatch.setattr(keeper.lab, "call", proven_meanwhile)
    await keeper.beat()

    assert killed.asked == 0
    assert (await pool.get("h:cpu0")).status == "idle"


BEFORE = Footprint(used_mb=100.0, processes={})


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


@pytest.fixture
async def gpu_keeper(
    process: Process, tmp_path: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Keeper]:
    """A keeper of a real GPU, as far as its driver tells."""
    monkeypatch.setattr(workers.keeper, "MEMORY_PATIENCE_S", 0.0)
    sampler = HealthSampler(helper=driver.command, timeout_s=60, start_timeout_s=60)
    async with keeping(process, tmp_path, GPU, sampler) as found:
        yield found


@pytest.fixture
async def left_keeper(gpu_keeper: Keeper, driver: Driver, pool: Pool) -> Keeper:
    """A run on the keeper's GPU was left behind, with 600 MB; `BEFORE` was there before it."""
    await gpu_keeper.register()
    await pool.flag(
        GPU.gpu_id, set_={"unproven": True, "footprint": BEFORE.model_dump()}, reason="a run is over"
    )
    driver.says(memory_used_mb=700.0, processes={})
    return gpu_keeper


async def test_memory_that_stays_keeps_a_gpu_draining_until_a_heartbeat_finds_it_back(
    left_keeper: Keeper, driver: Driver, caplog: pytest.LogCaptureFixture, pool: Pool
) -> None:
    await left_keeper.beat()
    assert (await pool.get(GPU.gpu_id)).status == "draining"
    assert "h:GPU-a is not lent" in caplog.text

    driver.says(memory_used_mb=100.0, processes={})
    await left_keeper.beat()

    gpu = await pool.get(GPU.gpu_id)
    assert (gpu.status, gpu.footprint) == ("idle", None)


async def test_a_driver_that_hangs_leaves_the_gpu_unproven_and_is_a_complaint(
    left_keeper: Keeper, driver: Driver, pool: Pool, process: Process
) -> None:
    driver.says(hang_s=600)

    async with HealthSampler(helper=driver.command, timeout_s=1.0, start_timeout_s=60) as hasty:
        await replace(left_keeper, sampler=hasty).beat()

    gpu = await pool.get(GPU.gpu_id)
    assert gpu.unproven
    invoker = process.invoker
    health = await invoker.call("gpu::health", {"gpu_id": GPU.gpu_id}, invoker.system("clock", "cron"))
    assert "did not answer" in str(health.model_dump()["error"])
    assert (await pool.get(GPU.gpu_id)).status == "unhealthy"


async def test_after_a_reboot_nothing_of_a_run_is_left_to_prove(
    left_keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers.keeper, "boot_id", lambda: "another-boot")

    assert await left_keeper.register()


async def test_a_worker_that_ends_in_order_does_not_take_the_need_of_a_proof_with_it(
    left_keeper: Keeper, driver: Driver, pool: Pool
) -> None:
    await _sign_off(left_keeper)

    assert (await pool.get(GPU.gpu_id)).status == "offline"
    assert not await left_keeper.register()
    driver.says(memory_used_mb=100.0, processes={})
    assert await left_keeper.register()
    await left_keeper.beat()
    assert (await pool.get(GPU.gpu_id)).status == "idle"


@pytest.mark.parametrize(("slow", "living"), [(1, "h:2:2"), (2, "h:2:2"), (2, "none")])
async def test_a_run_that_began_while_its_keeper_looked_for_the_one_before_is_left_alone(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, pool: Pool, slow: int, living: str
) -> None:
    kill_all = KillAll(monkeypatch, empty=True)
    await keeper.register()
    kill_all.asked = 0
    of_the_last_run = {"holder": "t-1", "runner": "h:1:1"}
    await pool.flag(keeper.gpu_id, set_=of_the_last_run, reason="a run")

    find, looks = keeper.find, 0

    async def overtaken() -> Gpu | None:
        nonlocal looks
        found = await find()
        looks += 1
        if looks == slow:  # its answer was slow: meanwhile that run was handed in, and the next one began
            of_the_next_run = {"holder": "t-2", "runner": "h:2:2", "fence": 2}
            await pool.flag(keeper.gpu_id, set_=of_the_next_run, reason="another run")
        return found

    monkeypatch.setattr(keeper, "find", overtaken)
    monkeypatch.setattr(workers.keeper, "is_alive", lambda runner, host: runner == living)
    await keeper.look()

    assert kill_all.asked == 0
    assert (await pool.get(keeper.gpu_id)).holder == "t-2"


async def test_an_operator_accepts_a_gpu_as_it_is_by_deregistering_it(
    left_keeper: Keeper, pool: Pool, process: Process
) -> None:
    invoker = process.invoker

    await invoker.call("pool::deregister", {"gpu_id": GPU.gpu_id}, invoker.system("operator"))
    await left_keeper.beat()

    assert (await pool.get(GPU.gpu_id)).status == "idle"


async def test_a_full_disk_makes_a_slot_unhealthy_until_there_is_room_again(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, pool: Pool, process: Process
) -> None:
    await keeper.register()
    invoker = process.invoker
    free = {"mb": 10.0}
    monkeypatch.setattr(workers.keeper, "free_mb", lambda folder: free["mb"])

    async def judged(times: int) -> str:
        for _ in range(times):
            await keeper.beat()
            await invoker.call("gpu::health", {"gpu_id": "h:cpu0"}, invoker.system("clock", "cron"))
        return (await pool.get("h:cpu0")).status

    assert await judged(1) == "unhealthy"
    free["mb"] = 1e6
    assert await judged(2) == "unhealthy"
    assert await judged(1) == "idle"
