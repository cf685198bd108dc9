"""Three clock processes on one lab, killed and stopped: every firing once, of the missed ones the latest."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from runpy import run_module
from typing import Any

import psutil
import pytest

from functions.kernel.process.lifecycle import Process
from state.settings import Settings
from tests.warm import Started, call

FAST = {"NIGHTJAR_STALE_S": "3.6"}
PATIENCE_S = 120.0

Start = Callable[[str], Started]


@pytest.fixture
def start(settings: Settings, tmp_path: Path) -> Iterator[Start]:
    """Starts processes of the test's lab; none outlives the test."""
    assert settings.redis_url is not None
    ours = {
        "NIGHTJAR_LAB": settings.lab,
        "NIGHTJAR_REDIS_URL": settings.redis_url.get_secret_value(),
        "NIGHTJAR_DATA": str(tmp_path),
    }
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NIGHTJAR_")} | FAST | ours
    started: list[Started] = []
    log = tmp_path / "processes.log"

    def start(module: str) -> Started:
        started.append(call(become, module, environment, log))
        return started[-1]

    yield start
    for process in started:
        process.kill()  # nothing where it has ended
        process.wait()
    said = log.read_text()
    assert "Traceback" not in said, said


def become(module: str, environment: Mapping[str, str], log: Path) -> None:
    """Turn this fork into a process that runs a module."""
    os.environ.clear()
    os.environ.update(environment)
    with log.open("a") as output:
        for number in (1, 2):
            os.dup2(output.fileno(), number)
    run_module(module, run_name="__main__")


async def until(met: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until something is so, much longer than it should take."""
    give_up = time.monotonic() + PATIENCE_S
    while not await met():
        assert time.monotonic() < give_up, f"never: {what}"
        await asyncio.sleep(0.02)


async def until_fired(process: Process, names: list[str], more: int = 3) -> None:
    """Wait for so many further firings of each of these functions."""
    before = {name: (await process.schedules.look(name)).firings.fired for name in names}
    for name in names:

        async def enough(name: str = name) -> bool:
            return (await process.schedules.look(name)).firings.fired >= before[name] + more

        await until(enough, f"{more} more firings of {name}")


async def freeze(*clocks: Started) -> None:
    """SIGSTOP, and wait until it took effect."""
    for clock in clocks:
        clock.send_signal(signal.SIGSTOP)

    async def stopped() -> bool:
        return all(psutil.Process(clock.pid).status() == psutil.STATUS_STOPPED for clock in clocks)

    await until(stopped, "the clocks stand still")


async def fired(process: Process, name: str) -> list[dict[str, Any]]:
    """Every firing that the function has ever got."""
    key = process.lab.keys("ticks", name)
    rows = await process.lab.command("XRANGE", key, "-", "+")
    return [json.loads(fields["data"]) for _, fields in rows]


async def test_of_three_clocks_one_is_killed_and_one_stopped_and_every_firing_comes_once(
    process: Process, start: Start
) -> None:
    periods = {"pool::sweep": 0.6, "pool::dispatch": 0.3, "gpu::health": 1.8}
    await process.schedules.pause("event::trim", "handled firings stay to be read")
    clocks = [start("triggers.clock") for _ in range(3)]
    start("triggers.events")
    await until_fired(process, list(periods))

    clocks[0].kill()
    await freeze(clocks[1])
    await until_fired(process, list(periods), more=4)
    clocks[1].send_signal(signal.SIGCONT)
    await until_fired(process, list(periods))
    clocks[2].kill()  # the one that was stopped goes on alone
    await until_fired(process, list(periods))
    clocks[1].send_signal(signal.SIGTERM)
    assert clocks[1].wait(PATIENCE_S) == 0

    for name, period in periods.items():
        firings = await fired(process, name)
        scheduled = [firing["scheduled"] for firing in firings]
        assert scheduled == sorted(set(scheduled))
        numbers = [round(firing / period) for firing in scheduled]
        assert scheduled == pytest.approx([number * period for number in numbers], abs=1e-3)
        counted = (await process.schedules.look(name)).firings
        assert counted.fired == len(firings)
        assert counted.until is not None
        # From the first on, each firing was fired, missed or skipped, and none of them twice.
        dealt_with = round(counted.until / period) - numbers[0] + 1
        waits = counted.waiting is not None
        assert dealt_with == counted.fired + counted.missed + counted.skipped + waits - firings[0]["missed"]
