"""Printed lines become ticks, and a hanging run differs from one that works in silence."""

from __future__ import annotations

import asyncio

from workers.attempt.output import PrintedTicks, Silence, Tick

SELDOM, ALWAYS = 3600.0, 0.0


def line(percent: float, loss: float = 2.0) -> bytes:
    return f"\rstep 00001 ({percent}%) | loss: {loss} | lrm: 1.00".encode()


async def taken(ticks: PrintedTicks) -> list[Tick]:
    """All that is due."""
    found: list[Tick] = []
    while True:
        waiting = asyncio.ensure_future(ticks.next())
        for _ in range(10):
            await asyncio.sleep(0)
        if not waiting.done():
            waiting.cancel()
            return found
        found.append(waiting.result())


async def test_a_script_that_prints_all_the_time_has_a_tick_for_each_bucket_and_few_between() -> None:
    ticks = PrintedTicks(SELDOM)
    found = []

    for percent in range(101):
        ticks.hear(line(percent))
        found += await taken(ticks)

    assert [share for _, share in found] == [0.0, 0.08, 0.15, 0.35, 0.55, 0.75, 0.95]


async def test_lines_that_come_all_at_once_are_ranked_like_those_that_come_one_by_one() -> None:
    ticks = PrintedTicks(SELDOM)

    ticks.hear(b"".join(line(percent, loss=100 - percent) for percent in range(101)))

    assert await taken(ticks) == [(92, 0.08), (85, 0.15), (65, 0.35), (45, 0.55), (25, 0.75), (5, 0.95)]


async def test_what_waits_between_two_buckets_is_replaced_by_what_is_newer() -> None:
    ticks = PrintedTicks(0.05)
    ticks.hear(line(1, loss=9.0))
    first = await ticks.next()

    for percent in (2, 3, 4):
        ticks.hear(line(percent, loss=9.0 - percent))
    second = await ticks.next()

    assert (first, second) == ((9.0, 0.01), (5.0, 0.04))
    assert await taken(ticks) == []


async def test_a_run_that_goes_on_within_a_bucket_enters_it_once() -> None:
    ticks = PrintedTicks(ALWAYS)

    for percent in (19, 20, 21):
        ticks.hear(line(percent))
    ticks.hear(b"\nevaluating ...\n")

    assert await taken(ticks) == [(2.0, 0.19), (2.0, 0.21)]


def test_a_run_is_silent_once_it_has_neither_printed_nor_computed_for_so_long() -> None:
    silence = Silence(30.0, now=0.0)
    assert [silence.lasts(now, cpu_s=0.0) for now in (0.0, 29.9, 30.0)] == [False, False, True]

    silence.ends(20.0, cpu_s=5.0)  # it has printed something

    assert [silence.lasts(now, cpu_s=5.0) for now in (30.0, 49.9, 50.0)] == [False, False, True]
    assert silence.since == 20.0


def test_a_run_that_computes_may_be_silent_for_as_long_as_it_had_run_before() -> None:
    computes, stopped = Silence(30.0, now=0.0), Silence(30.0, now=0.0)
    computes.ends(200.0, cpu_s=200.0)
    stopped.ends(200.0, cpu_s=200.0)

    assert [computes.lasts(now, cpu_s=now) for now in (240.0, 300.0, 399.0, 400.0)] == [False] * 3 + [True]
    assert not stopped.lasts(250.0, cpu_s=250.0)
    assert [stopped.lasts(now, cpu_s=250.0) for now in (270.0, 280.0)] == [False, True]
    assert stopped.since == 200.0
