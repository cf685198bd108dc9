"""What holds the event loop is counted and named; what only waits does not hold it."""

from __future__ import annotations

import asyncio
import time

from functions.kernel.process.meters import HELD_MOST_S, LOOK_S, Meters, watch
from functions.kernel.process.running import ended
from tests.logged import logged

TOO_LONG_S = HELD_MOST_S + 2 * LOOK_S


def compute(seconds: float) -> None:
    """Take so much CPU time of this thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def held(meters: Meters) -> float:
    """How many holds were noted."""
    return sum(
        sample.value
        for family in meters.families({})
        if family.name == "nightjar_event_loop_held_seconds"
        for sample in family.samples
        if sample.name.endswith("_count")
    )


async def test_what_holds_the_event_loop_is_counted_and_named() -> None:
    meters = Meters("web")
    watching = asyncio.create_task(watch(meters))
    with logged() as lines:
        meters.begun("a::earlier")
        await asyncio.sleep(3 * LOOK_S)
        meters.called("a::earlier", "call", "ok", 0.1)
        await asyncio.sleep(3 * LOOK_S)
        meters.begun("a::waiting")
        meters.begun("a::computing")
        compute(TOO_LONG_S)
        meters.called("a::computing", "call", "ok", TOO_LONG_S)
        await asyncio.sleep(3 * LOOK_S)
    await ended(watching)

    assert held(meters) == 1
    assert "the event loop was held for 0." in lines.text
    assert "a::computing, a::waiting" in lines.text
    assert "a::earlier" not in lines.text


async def test_a_thread_and_a_wait_do_not_hold_it() -> None:
    meters = Meters("web")
    watching = asyncio.create_task(watch(meters))

    await asyncio.to_thread(compute, TOO_LONG_S)
    time.sleep(TOO_LONG_S)  # noqa: ASYNC251 (as if the machine had let nothing of ours run)
    await asyncio.sleep(3 * LOOK_S)
    await ended(watching)

    assert held(meters) == 0
