"""The keeper of one GPU: what it survives, and when it stays out of the pool."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import workers.keeper
from functions.process import Process, ended, opened
from functions.supervision import ProcessGroup
from state.pool import Pool
from state.settings import Settings
from workers.device import Sampler
from workers.gpu import device_of
from workers.keeper import Keeper, _registered, _watch
from workers.options import DeviceOptions

pytestmark = pytest.mark.process

OPTIONS = DeviceOptions(
    repo=Path("/nowhere"),
    gpu_id="h:cpu0",
    gpu_index=0,
    gpu_name="cpu",
    vram_mb=0,
    uuid=None,
    driver=None,
    kind="cpu",
)


@pytest.fixture
async def process(settings: Settings) -> AsyncIterator[Process]:
    """A process that does everything a hundred times a second."""
    async with opened("keeper", settings.model_copy(update={"heartbeat_s": 0.05})) as running:
        yield running


@pytest.fixture
async def keeper(process: Process, tmp_path: Path) -> AsyncIterator[Keeper]:
    group = ProcessGroup([], tmp_path / "logs", lambda line: None)
    async with Sampler() as sampler:
        yield Keeper(process, Pool(process.lab), device_of(OPTIONS), OPTIONS, group, sampler)


class KillAll:
    """Kills nothing, and finds the GPU as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, empty: bool) -> None:
        self.empty = empty
        self.asked = 0
        monkeypatch.setattr(workers.keeper, "kill_all", self)

    def __call__(self, stamp: str) -> bool:
        self.asked += 1
        return self.empty


async def eventually(what: Callable[[], bool], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.01)


async def test_a_gpu_with_processes_that_do_not_die_stays_out_of_the_pool_until_it_is_empty(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kill_all = KillAll(monkeypatch, empty=False)
    registering = asyncio.create_task(_registered(keeper, asyncio.Event()))
    await eventually(lambda: kill_all.asked >= 3)

    assert await keeper.pool.find("h:cpu0") is None
    assert "h:cpu0 stays out of the pool" in caplog.text
    kill_all.empty = True

    assert await asyncio.wait_for(registering, 5)
    assert (await keeper.pool.get("h:cpu0")).status == "idle"


async def test_a_keeper_that_waits_for_its_gpu_can_be_told_to_end(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    KillAll(monkeypatch, empty=False)
    stop = asyncio.Event()
    registering = asyncio.create_task(_registered(keeper, stop))
    await asyncio.sleep(0.02)

    stop.set()

    assert not await asyncio.wait_for(registering, 5)


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
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    KillAll(monkeypatch, empty=True)
    await keeper.register()

    call = keeper.call

    async def removed_meanwhile(function: str, request: Mapping[str, Any]) -> dict[str, Any]:
        if function != "pool::heartbeat":
            return await call(function, request)
        invoker = keeper.process.invoker
        await invoker.call("pool::deregister", {"gpu_id": "h:cpu0"}, invoker.system("operator"))
        return {"action": "prove"}

    monkeypatch.setattr(keeper, "call", removed_meanwhile)
    await keeper.beat()

    assert (await keeper.pool.get("h:cpu0")).status == "idle"
