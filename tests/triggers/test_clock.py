"""The clock: any number of them fires each tick once, at the times a cron expression means."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.contract import Cron, Every, Function, Request, Response, function, table
from functions.process import opened
from state.settings import Settings
from triggers.clock import EPOCH, WEEKDAYS, claim, interval_of, keep_time, schedule_of, weekday_names

NOW = datetime(2026, 3, 11, 12, 0, 30, tzinfo=UTC)
"""A Wednesday."""


class Ask(Request):
    pass


class Told(Response):
    pass


async def answer(request: Ask) -> Told:
    """Answer."""
    return Told()


def ticking(name: str, trigger: Every | Cron) -> dict[str, Function[Any, Any]]:
    return {name: function(name, trigger, role="operator")(answer)}


async def test_three_clocks_fire_each_tick_once(settings: Settings) -> None:
    functions = ticking("probe::fast", Every(0.05)) | ticking("probe::cron", Cron("* * * * * *"))
    stop = asyncio.Event()

    async with AsyncExitStack() as stack:
        clocks = [await stack.enter_async_context(opened("clock", settings)) for _ in range(3)]
        tasks = [asyncio.create_task(keep_time(clock, functions, stop)) for clock in clocks]
        lab = clocks[0].lab
        count = 0
        while count < 20:
            await asyncio.sleep(0.02)
            count = int(await lab.command("XLEN", lab.keys("ticks", "probe::fast")))
        stop.set()
        await asyncio.gather(*tasks)
        sub = clocks[0].stream.ticks("probe::fast", "reader")
        await sub.serve()
        ticks = [float(e.data["scheduled"]) for e in await sub.read(1000, 1.0)]

    assert len(ticks) >= 20
    assert ticks == sorted(set(ticks))
    beats = [(tick - EPOCH.timestamp()) / 0.05 for tick in ticks]
    assert beats == pytest.approx([round(beat) for beat in beats], abs=1e-3)


async def test_a_clock_ahead_of_redis_is_refused(settings: Settings) -> None:
    async with opened("clock", settings) as process:
        now = await process.lab.now()

        assert await process.stream.fire("probe::fast", now + 60) == "early"
        assert await process.stream.fire("probe::fast", now) == "fired"


async def test_ticks_go_on_when_the_clock_of_redis_was_set_back(settings: Settings) -> None:
    async with opened("clock", settings) as process:
        now = await process.lab.now()
        await process.lab.command(
            "HSET", process.lab.keys("tick", "probe::fast"), "scheduled", repr(now + 3600)
        )

        answers = [await process.stream.fire("probe::fast", now) for _ in range(2)]

    assert answers == ["fired", "taken"]


async def test_a_tick_of_a_host_that_is_ahead_of_redis_is_fired_when_its_time_has_come(
    settings: Settings,
) -> None:
    async with opened("clock", settings) as process:
        scheduled = await process.lab.now() + 2.3

        await claim(process, "probe::fast", scheduled, asyncio.Event())

        assert int(await process.lab.command("XLEN", process.lab.keys("ticks", "probe::fast"))) == 1
        assert await process.lab.now() >= scheduled - 0.01


async def test_a_clock_that_waits_with_a_tick_can_be_stopped(settings: Settings) -> None:
    stop = asyncio.Event()
    async with opened("clock", settings) as process:
        waiting = asyncio.create_task(claim(process, "probe::fast", await process.lab.now() + 50, stop))
        await asyncio.sleep(0.1)
        assert not waiting.done()

        stop.set()
        await asyncio.wait_for(waiting, 5)

        assert int(await process.lab.command("XLEN", process.lab.keys("ticks", "probe::fast"))) == 0


def fires(expression: str, count: int, timezone: str = "UTC") -> list[datetime]:
    """The next times after NOW."""
    trigger = schedule_of(Cron(expression, timezone), Settings.model_validate({}))
    found: list[datetime] = []
    last, now = None, NOW
    for _ in range(count):
        last = trigger.get_next_fire_time(last, now)
        assert last is not None
        found.append(last.astimezone(UTC))
        now = last + timedelta(microseconds=1)
    return found


def test_five_fields_begin_with_minutes_and_six_with_seconds() -> None:
    assert fires("*/15 * * * *", 2) == [NOW.replace(minute=15, second=0), NOW.replace(minute=30, second=0)]
    assert fires("*/20 * * * * *", 2) == [NOW.replace(second=40), NOW.replace(minute=1, second=0)]


@pytest.mark.parametrize("expression", ["", "*", "* * * *", "* * * * * * *"])
def test_another_number_of_fields_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="5 or 6"):
        schedule_of(Cron(expression), Settings.model_validate({}))


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0", ["sun"]),
        ("7", ["sun"]),
        ("1", ["mon"]),
        ("1-5", ["mon", "tue", "wed", "thu", "fri"]),
        ("0-5", ["sun", "mon", "tue", "wed", "thu", "fri"]),
        ("0-7", list(WEEKDAYS)),
        ("5-7", ["sun", "fri", "sat"]),
        ("*/2", ["sun", "tue", "thu", "sat"]),
        ("1-5/2", ["mon", "wed", "fri"]),
        ("3/2", ["wed", "fri"]),
        ("mon,WED,6", ["mon", "wed", "sat"]),
        ("fri-mon", ["sun", "mon", "fri", "sat"]),
    ],
)
def test_weekdays_are_counted_from_sunday(expression: str, days: Sequence[str]) -> None:
    assert weekday_names(expression).split(",") == days
    found = {WEEKDAYS[(day.weekday() + 1) % 7] for day in fires(f"0 12 * * {expression}", 14)}
    assert found == set(days)


@pytest.mark.parametrize("expression", ["8", "-1", "monday", "", "1,,2", "1-", "x", "1/x"])
def test_what_is_no_weekday_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"weekday|invalid literal"):
        weekday_names(expression)


@given(st.integers(0, 6), st.integers(0, 6))
def test_a_range_of_weekdays_holds_every_day_between_its_ends(first: int, last: int) -> None:
    days = weekday_names(f"{first}-{last}").split(",")

    assert WEEKDAYS[first] in days
    assert WEEKDAYS[last] in days
    assert len(days) == (last - first) % 7 + 1


def test_a_time_zone_is_honoured() -> None:
    (first,) = fires("30 14 * * *", 1, "Asia/Tokyo")

    assert (first.hour, first.minute) == (5, 30)


def test_intervals_may_be_settings(settings: Settings) -> None:
    assert interval_of(Every(2.5), settings) == 2.5
    assert interval_of(Every("sweep_s"), settings) == settings.sweep_s


def test_every_trigger_of_the_table_can_be_scheduled(settings: Settings) -> None:
    found = {
        (name, str(trigger)): schedule_of(trigger, settings)
        for name, declared in table().items()
        for trigger in declared.triggers
        if isinstance(trigger, Every | Cron)
    }

    assert {name for name, _ in found} >= {"pool::sweep", "pool::dispatch", "gpu::health"}
