"""Any number of clocks make each firing once, and decide the missed ones once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from functions.kernel.contract import Request, Response
from functions.kernel.process.lifecycle import Process
from functions.kernel.rules.firings import Schedule, SteadyTimes
from state.schedules import Firings
from tests.labs import claimed
from triggers.clock import advance

NAME = "probe::tick"


class Ask(Request):
    pass


class Told(Response):
    pass


async def answer(request: Ask) -> Told:
    """Answer."""
    return Told()


def schedule(seconds: float = 10.0, **declared: Any) -> Schedule:
    return Schedule(function=NAME, text="every", times=SteadyTimes(seconds), **declared)


async def fired(process: Process, name: str = NAME) -> list[dict[str, Any]]:
    """What every firing says that was ever put before the function."""
    reader = process.schedules.subscription(name, "reader")
    reader.group = "reader"
    await reader.serve()
    return [dict(e.data) for e in await reader.read(1000, 0.05)]


async def until(
    process: Process, met: Callable[[Firings], bool], name: str = NAME, clock: Schedule | None = None
) -> Firings:
    """Wait until a function's firings are so, with this clock going meanwhile."""
    deadline = time.monotonic() + 60
    while True:
        firings = (await process.schedules.look(name)).firings
        if met(firings):
            return firings
        assert time.monotonic() < deadline, firings
        await asyncio.sleep(0.01 if clock is None else await advance(process.schedules, clock))


async def decided(process: Process, until: float, text: str = "every") -> None:
    """As if clocks had decided the firings so far, and no further."""
    key = process.lab.keys("tick", NAME)
    await process.lab.command("HSET", key, "until", repr(until), "text", text)


@pytest.mark.parametrize(
    ("missed", "made_up"),
    [
        ("skip", 0),
        ("latest", 1),
    ],
)
async def test_firings_missed_by_all_clocks_follow_their_policy_once(
    process: Process, missed: Any, made_up: int
) -> None:
    now = await process.lab.now()
    period = round((now - 60) / 1e6, 6)  # of half an hour; the newest firing was due a minute ago
    last = period * (1e6 - 5)
    await decided(process, last)

    for _ in range(2):  # at every start, of every clock
        await asyncio.gather(*(advance(process.schedules, schedule(period, missed=missed)) for _ in range(3)))

    found = await fired(process)
    firings = (await process.schedules.look(NAME)).firings
    assert [firing["scheduled"] for firing in found] == pytest.approx([period * 1e6][:made_up])
    assert (firings.fired, firings.missed) == (made_up, 5 - made_up)
    assert [firing["missed"] for firing in found] == [4][:made_up]


async def test_missed_firings_that_were_not_made_up_are_told_to_the_next(process: Process) -> None:
    now = await process.lab.now()
    await decided(process, now - 10)
    await claimed(process, NAME, now - 5, before=now - 10, missed=4)

    await claimed(process, NAME, now, before=now - 5, fire=now, missed=1)

    assert [firing["missed"] for firing in await fired(process)] == [5]


async def test_a_function_seen_for_the_first_time_has_missed_nothing(process: Process) -> None:
    pause = await advance(process.schedules, schedule(1000.0))

    firings = (await process.schedules.look(NAME)).firings
    assert (firings.fired, firings.missed) == (0, 0)
    assert 0 < pause <= 1000


async def test_of_clocks_that_decide_at_once_one_wins(process: Process) -> None:
    now = await process.lab.now()
    await decided(process, now - 1)

    answers = [await claimed(process, NAME, now, before=now - 1, fire=now, overlap="allow") for _ in range(3)]

    assert answers == ["claimed", "taken", "taken"]


async def test_no_firing_comes_before_its_time_by_redis_clock(process: Process) -> None:
    now = await process.lab.now()
    await decided(process, now)

    answer = await claimed(process, NAME, now + 60, before=now, fire=now + 60)

    assert answer == "early"
    assert await fired(process) == []


async def test_what_a_clock_decided_before_it_stood_still_is_void(process: Process) -> None:
    now = await process.lab.now()
    await decided(process, now - 10)

    answer = await claimed(process, NAME, now - 8, before=now - 10, fire=now - 8, holds_until=now - 7)

    assert answer == "late"
    assert await fired(process) == []


async def test_firings_go_on_when_the_clock_of_redis_was_set_back(process: Process) -> None:
    await decided(process, await process.lab.now() + 3600)
    steady = schedule(0.05)

    firings = await until(process, lambda firings: firings.fired > 0, clock=steady)

    assert firings.until is not None
    assert firings.until < await process.lab.now()


async def test_a_paused_function_is_not_fired_and_nothing_of_its_pause_is_made_up(process: Process) -> None:
    steady = schedule(0.05)
    await advance(process.schedules, steady)
    await process.schedules.pause(NAME, "")

    await asyncio.sleep(0.2)
    await advance(process.schedules, steady)
    paused = (await process.schedules.look(NAME)).firings
    await process.schedules.resume(NAME)
    resumed = (await process.schedules.look(NAME)).now
    firings = await until(process, lambda firings: firings.fired > 0, clock=steady)

    assert paused.fired == firings.missed == 0
    assert min(firing["scheduled"] for firing in await fired(process)) > resumed - 0.05
