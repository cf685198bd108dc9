"""The clock process: claims ticks for the functions that time fires. `python -P -m triggers.clock`."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from apscheduler.events import EVENT_JOB_SUBMITTED, JobSubmissionEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from functions.contract import Cron, Every, Function, table
from functions.process import Process, opened, run, stop_signals
from state.errors import Unavailable
from state.settings import Settings

log = logging.getLogger(__name__)

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
"""Intervals are counted from here, so that all clocks name the same ticks."""
PATIENCE_S = 60.0
"""A host may be ahead of Redis by so much; its ticks wait until Redis' clock has come."""
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def interval_of(trigger: Every, settings: Settings) -> float:
    """Seconds between two ticks; a name is a setting's."""
    seconds = trigger.seconds
    return float(getattr(settings, seconds)) if isinstance(seconds, str) else seconds


def schedule_of(trigger: Every | Cron, settings: Settings) -> BaseTrigger:
    """APScheduler's form of a trigger."""
    if isinstance(trigger, Every):
        seconds: Any = interval_of(trigger, settings)  # fractions work: its parameters become a timedelta
        return IntervalTrigger(seconds=seconds, start_date=EPOCH, timezone=UTC)
    fields = trigger.expression.split()
    if len(fields) == 5:
        fields = ["0", *fields]
    if len(fields) != 6:
        raise ValueError(f"{trigger.expression!r} has {len(fields)} fields, a cron expression 5 or 6")
    second, minute, hour, day, month, weekday = fields
    return CronTrigger(
        second=second,
        minute=minute,
        hour=hour,
        day=day,
        month=month,
        day_of_week=weekday_names(weekday),
        timezone=ZoneInfo(trigger.timezone),
    )


def weekday_names(expression: str) -> str:
    """Standard weekdays (0 and 7 are Sunday) as a list of names: APScheduler counts from Monday.

    Raises:
        ValueError: no weekday.
    """
    if expression == "*":
        return "*"
    days: set[int] = set()
    for part in expression.lower().split(","):
        span, slash, step = part.partition("/")
        first, dash, last = ("0", "-", "6") if span == "*" else span.partition("-")
        begin, end = (
            weekday_number(first),
            weekday_number(last) if dash else 6 if slash else weekday_number(first),
        )
        if end < begin:
            end += 7  # fri-mon goes over the end of the week
        days.update(day % 7 for day in range(begin, end + 1, max(1, int(step)) if slash else 1))
    return ",".join(WEEKDAYS[day] for day in sorted(days))


def weekday_number(text: str) -> int:
    """A weekday's standard number, from its number or name."""
    if text in WEEKDAYS:
        return WEEKDAYS.index(text)
    if text.isdecimal() and int(text) <= 7:
        return int(text)
    raise ValueError(f"{text!r} is no weekday: 0 to 7, or sun to sat")


async def serve(settings: Settings) -> None:
    """Claim ticks until SIGTERM or SIGINT; any number of clocks may run, each tick is fired once."""
    stop = stop_signals()
    async with opened("clock", settings) as process:
        await keep_time(process, table(), stop)


async def keep_time(
    process: Process, functions: Mapping[str, Function[Any, Any]], stop: asyncio.Event
) -> None:
    """Claim every tick of these functions until `stop`."""
    scheduler = AsyncIOScheduler(timezone=UTC)
    for name, declared in functions.items():
        for trigger in declared.triggers:
            if isinstance(trigger, Every | Cron):
                scheduler.add_job(
                    _nothing,
                    schedule_of(trigger, process.settings),
                    id=name,
                    coalesce=True,
                    misfire_grace_time=None,
                    max_instances=16,
                )
    claims: set[asyncio.Task[None]] = set()

    def submitted(event: JobSubmissionEvent) -> None:
        scheduled = event.scheduled_run_times[-1].timestamp()
        task = asyncio.get_running_loop().create_task(claim(process, event.job_id, scheduled, stop))
        claims.add(task)
        task.add_done_callback(claims.discard)

    scheduler.add_listener(submitted, EVENT_JOB_SUBMITTED)
    scheduler.start()
    try:
        await stop.wait()
    finally:
        scheduler.shutdown(wait=False)
        await asyncio.gather(*claims)


async def _nothing(*_: Any) -> None:
    """The job itself: what a tick means is in the listener, which alone knows the scheduled time."""


async def claim(process: Process, function: str, scheduled: float, stop: asyncio.Event) -> None:
    """Fire a tick, unless another clock did; where this host is ahead, when Redis' clock has come."""
    try:
        if await process.stream.fire(function, scheduled) != "early":
            return
        ahead = scheduled - await process.lab.now()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(ahead, 0.0), PATIENCE_S)):
                await stop.wait()
                return
        if await process.stream.fire(function, scheduled) == "early":
            log.error("this host is %.0f s ahead of Redis: its tick of %s was refused", ahead, function)
    except Unavailable as problem:
        log.warning("tick of %s is lost: %s", function, problem.detail)


if __name__ == "__main__":
    sys.exit(run("clock", serve))
