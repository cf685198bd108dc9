"""When the clock fires a function, and what happens to firings that were missed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Literal, Protocol
from zoneinfo import ZoneInfo

Missed = Literal["skip", "latest"]
Overlap = Literal["skip", "queue", "allow"]

MICROSECOND = 1e-6
"""The resolution of Redis' clock."""
SET_BACK_S = 2.0
"""If decided firings end further ahead than this, Redis' clock was set back since."""
GRACE_S = 5.0
"""A firing later than this counts as missed."""
COUNTED = 10_000
"""Missed firings of a cron expression are counted up to this number."""
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class Times(Protocol):
    """The scheduled times of a trigger, in seconds since 1970."""

    def next_after(self, time: float) -> float:
        """The first time after `time`."""
        ...

    def newest(self, after: float, until: float) -> float | None:
        """The last time in `(after, until]`."""
        ...

    def count(self, after: float, until: float) -> int:
        """How many times lie in `(after, until]`."""
        ...


class SteadyTimes:
    """Every so many seconds, counted from 1970 in whole microseconds, so that all clocks agree on every time.

    APScheduler's IntervalTrigger counts in floats: at an interval of 1/3 s, clocks that ask at different moments get
    times that differ by a microsecond.
    """

    def __init__(self, seconds: float) -> None:
        self._period = round(seconds * 1_000_000)
        if self._period < 1:
            raise ValueError(f"an interval of {seconds!r} s is too short")

    def next_after(self, time: float) -> float:
        return self._nth(self._number(time) + 1)

    def newest(self, after: float, until: float) -> float | None:
        return self._nth(self._number(until)) if self.count(after, until) else None

    def count(self, after: float, until: float) -> int:
        return max(0, self._number(until) - self._number(after))

    def _number(self, time: float) -> int:
        return round(time * 1_000_000) // self._period

    def _nth(self, number: int) -> float:
        return number * self._period / 1_000_000


class CronTimes:
    """A cron expression of 5 fields, or 6 with seconds first, in a time zone.

    Where clocks go forward, a time in the skipped hour comes one hour later. Where they go back, a named hour comes
    once; `*` and `*/n` come in both hours.

    Raises:
        ValueError: no expression, no time zone, or a time that never comes.
    """

    def __init__(self, expression: str, timezone: str) -> None:
        from apscheduler.triggers.cron import CronTrigger  # half a second to import: only where it is needed

        fields = expression.split()
        if len(fields) == 5:
            fields = ["0", *fields]
        if len(fields) != 6:
            raise ValueError(f"{expression!r} has {len(fields)} fields, a cron expression 5 or 6")
        second, minute, hour, day, month, weekday = fields
        self._zone = _zone(timezone)
        self._once = not hour.startswith("*")
        self._trigger: Any = CronTrigger(
            second=second,
            minute=minute,
            hour=hour,
            day=day,
            month=month,
            day_of_week=weekday_names(weekday),
            timezone=self._zone,
        )
        self._expression = expression
        self.next_after(0.0)

    def next_after(self, time: float) -> float:
        while True:
            begin = datetime.fromtimestamp(time + MICROSECOND, self._zone)
            found: datetime | None = self._trigger.get_next_fire_time(None, begin)
            if found is None:
                raise ValueError(f"{self._expression!r} never comes")
            time = found.timestamp()
            if not (self._once and datetime.fromtimestamp(time, self._zone).fold):
                return time

    def newest(self, after: float, until: float) -> float | None:
        first = self.next_after(after)
        if first > until:
            return None
        # `next_after` grows with its argument, so halving the span finds the last time that is not too late
        known, late = first, until
        while (following := self.next_after(known)) <= until:
            middle = (following + late) / 2
            found = self.next_after(middle)
            known, late = (found, late) if found <= until else (following, middle)
        return known

    def count(self, after: float, until: float) -> int:
        for counted in range(COUNTED):
            after = self.next_after(after)
            if after > until:
                return counted
        return COUNTED


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # also on a machine without time zone data
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as problem:
        raise ValueError(f"{name!r} is no time zone: use a name like Europe/Berlin, or UTC") from problem


def weekday_names(expression: str) -> str:
    """Weekdays (0 and 7: Sunday) as names, since APScheduler counts from Monday. Raises ValueError: none."""
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
            end += 7  # fri-mon crosses the end of the week
        days.update(day % 7 for day in range(begin, end + 1, max(1, int(step)) if slash else 1))
    return ",".join(WEEKDAYS[day] for day in sorted(days))


def weekday_number(text: str) -> int:
    """A weekday's standard number, from its number or name."""
    if text in WEEKDAYS:
        return WEEKDAYS.index(text)
    if text.isdecimal() and int(text) <= 7:
        return int(text)
    raise ValueError(f"{text!r} is no weekday: 0 to 7, or sun to sat")


@dataclass(frozen=True)
class Schedule:
    """When one function is fired, and by which policies."""

    function: str
    text: str
    """The trigger in words; another text is another schedule."""
    times: Times
    missed: Missed = "latest"
    overlap: Overlap = "skip"
    jitter_s: float = 0.0
    salt: str = ""
    """Labs with the same schedule fire at different moments."""

    def delay(self, scheduled: float) -> float:
        """Seconds between the scheduled time and the firing: up to `jitter_s`, the same for all clocks."""
        if not self.jitter_s:
            return 0.0
        name = f"{self.salt}|{self.function}|{scheduled!r}".encode()
        drawn = int.from_bytes(hashlib.sha256(name).digest()[:8]) / 2**64
        return round(drawn * self.jitter_s, 6)

    def newest_due(self, after: float, now: float) -> float | None:
        """The last scheduled time after `after` whose firing is due by now, and all firings before it."""
        spread = now - self.jitter_s
        due = self.times.newest(after, spread) if spread > after else None
        scheduled = self.times.next_after(max(after, spread))
        while scheduled + self.delay(scheduled) <= now:
            due, scheduled = scheduled, self.times.next_after(scheduled)
        return due

    def next_due(self, after: float, now: float) -> tuple[float, float]:
        """The first firing after `after` that is not yet due: its scheduled time, and when it comes."""
        after = after if after <= now + SET_BACK_S else now
        newest = self.newest_due(after, now)
        scheduled = self.times.next_after(after if newest is None else newest)
        return scheduled, scheduled + self.delay(scheduled)


@dataclass(frozen=True)
class Due:
    """What a clock decides about the firings up to `until`."""

    until: float
    fire: float | None = None
    """The scheduled time that is fired; None if none is."""
    missed: int = 0
    """Firings that are given up."""


def due(schedule: Schedule, decided_until: float | None, now: float, *, changed: bool = False) -> Due | None:
    """Decide the firings since `decided_until`; None if none is due.

    Nothing counts as missed where the function is new to the clock, where its schedule was changed, or where the last
    decision lies ahead because Redis' clock was set back.
    """
    if decided_until is None:
        return Due(now)
    afresh = changed or decided_until > now + SET_BACK_S
    after = recent(schedule, decided_until, now) if afresh else decided_until
    newest = schedule.newest_due(after, now) if after < now else None
    if newest is None:
        return None
    on_time = now - newest - schedule.delay(newest) <= GRACE_S
    if afresh:
        return Due(newest, newest if on_time else None)
    fires = on_time or schedule.missed == "latest"
    return Due(newest, newest if fires else None, schedule.times.count(after, newest) - fires)


def recent(schedule: Schedule, decided_until: float, now: float) -> float:
    """Firings after this may still be on time, whatever another clock or schedule decided before."""
    begin = now - GRACE_S - schedule.jitter_s
    return max(begin, decided_until) if decided_until <= now + SET_BACK_S else begin
