"""Any number of clocks make each firing once, and decide the missed ones once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from functions.kernel.process.lifecycle import Process
from functions.kernel.rules.firings import Schedule, SteadyTimes
from state.schedules import Firings
from tests.labs import claimed
from triggers.clock import advance

NAME = "probe::tick"


def schedule(seconds: float = 10.0, **declared: Any) -> Schedule:
    return Schedule(function=NAME, text="every", times=SteadyTimes(seconds), **declared)


async def fired(process: Process) -> list[dict[str, Any]]:
    """What every firing says that was ever put before the function."""
    reader = process.schedules.subscription(NAME, "reader")
    reader.group = "reader"
    await reader.serve()
    return [dict(e.data) for e in await reader.read(1000, 0.05)]


async def until_fired(process: Process, clock: Schedule) -> Firings:
    """Wait until a function is fired, with this clock going meanwhile."""
    async with asyncio.timeout(60):
        while True:
            await asyncio.sleep(await advance(process.schedules, clock))
            if (firings := (await process.schedules.look(NAME)).firings).fired:
                return firings


async def decided(process: Process, until: float, text: str = "every") -> None:
    """As if clocks had decided the firings so far, and no further."""
    key = process.lab.keys("tick", NAME)
    await process.lab.command("HSET", key, "until", repr(until), "text", text)


@pytest.mark.parametrize(("missed", "made_up"), [("skip", 0), ("latest", 1)])
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


@pytest.mark.parametrize(
    ("until", "holds_until", "answers"),
    [
        (0, None, ["claimed", "taken"]),  # of clocks that decide at once one wins
        (60, None, ["early", "early"]),  # by Redis' clock
        (-2, -1, ["late", "late"]),  # of a clock that stood still since
    ],
)
async def test_a_decision_about_firings_counts_once_and_in_its_time(
    process: Process, until: float, holds_until: float | None, answers: list[str]
) -> None:
    now, before = await process.lab.now(), -10
    await decided(process, now + before)
    holds = None if holds_until is None else now + holds_until

    said = [
        await claimed(
            process,
            NAME,
            now + until,
            before=now + before,
            fire=now + until,
            overlap="allow",
            holds_until=holds,
        )
        for _ in answers
    ]

    assert said == answers
    assert len(await fired(process)) == said.count("claimed")


async def test_firings_go_on_when_the_clock_of_redis_was_set_back(process: Process) -> None:
    await decided(process, await process.lab.now() + 3600)
    steady = schedule(0.05)

    firings = await until_fired(process, steady)

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
    firings = await until_fired(process, steady)

    assert paused.fired == firings.missed == 0
    assert min(firing["scheduled"] for firing in await fired(process)) > resumed - 0.05
