"""When the clock fires a function: the times a schedule means, and what becomes of those that were missed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Literal, Protocol
from zoneinfo import ZoneInfo

Missed = Literal["skip", "latest", "all"]
Overlap = Literal["skip", "queue", "allow"]

MICROSECOND = 1e-6
"""What Redis' clock can tell apart; also what is left of a time as a float."""
SET_BACK_S = 2.0
"""A tick that lies further ahead was decided before Redis' clock was set back."""
COUNTED = 10_000
"""Missed ticks of a cron expression are counted so far, and no further."""
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class Times(Protocol):
    """The times of a schedule, in seconds since 1970."""

    def next_after(self, time: float) -> float:
        """The first tick after `time`."""
        ...

    def newest(self, after: float, until: float) -> float | None:
        """The last tick in `(after, until]`."""
        ...

    def count(self, after: float, until: float) -> int:
        """How many ticks there are in `(after, until]`."""
        ...


class Steady:
    """Every so many seconds, counted from 1970, so that all clocks name the same ticks."""

    def __init__(self, seconds: float) -> None:
        self._period = round(seconds * 1_000_000)
        if self._period < 1:
            raise ValueError(f"an interval of {seconds!r} s is none")

    def next_after(self, time: float) -> float:
        return self._tick(self._number(time) + 1)

    def newest(self, after: float, until: float) -> float | None:
        return self._tick(self._number(until)) if self.count(after, until) else None

    def count(self, after: float, until: float) -> int:
        return max(0, self._number(until) - self._number(after))

    def _number(self, time: float) -> int:
        return round(time * 1_000_000) // self._period

    def _tick(self, number: int) -> float:
        return number * self._period / 1_000_000


class Calendar:
    """A cron expression of 5 fields, or 6 with seconds first, in a time zone.

    Where clocks are set forward, a time that is left out comes as much later. Where they are set back, an hour that
    is named comes once, `*` and `*/n` come both times.

    Raises:
        ValueError: no expression, no time zone, or a time that never comes.
    """

    def __init__(self, expression: str, timezone: str) -> None:
        from apscheduler.triggers.cron import CronTrigger  # a tenth of a second, for those who need it

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
        # The next tick never comes earlier when one asks later: so halving finds the last one that is not too late.
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
        return UTC  # also where a machine has no time zones
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as problem:
        raise ValueError(f"{name!r} is no time zone: use a name like Europe/Berlin, or UTC") from problem


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


@dataclass(frozen=True)
class Schedule:
    """When one function is fired, and by which rules."""

    function: str
    text: str
    """The trigger in words; another text is another schedule."""
    times: Times
    missed: Missed = "latest"
    at_most: int = 0
    """With missed="all": how many missed ticks are made up, the newest."""
    overlap: Overlap = "skip"
    grace_s: float = 5.0
    """A tick that is claimed later than this counts as missed."""
    jitter_s: float = 0.0
    salt: str = ""
    """Makes labs that share a schedule fire apart."""

    def delay(self, tick: float) -> float:
        """How long after its time a tick is fired: up to `jitter_s`, the same for all clocks."""
        if not self.jitter_s:
            return 0.0
        name = f"{self.salt}|{self.function}|{tick!r}".encode()
        drawn = int.from_bytes(hashlib.sha256(name).digest()[:8]) / 2**64
        return round(drawn * self.jitter_s, 6)

    def newest_due(self, after: float, now: float) -> float | None:
        """The last tick after `after` that is to be fired by now, with all before it."""
        spread = now - self.jitter_s
        due = self.times.newest(after, spread) if spread > after else None
        tick = self.times.next_after(max(after, spread))
        while tick + self.delay(tick) <= now:
            due, tick = tick, self.times.next_after(tick)
        return due

    def next_due(self, after: float, now: float) -> tuple[float, float]:
        """The first tick after `after` that is still to be fired, and when."""
        after = after if after <= now + SET_BACK_S else now
        newest = self.newest_due(after, now)
        tick = self.times.next_after(after if newest is None else newest)
        return tick, tick + self.delay(tick)


@dataclass(frozen=True)
class Due:
    """What a clock does about the ticks up to `until`."""

    until: float
    fire: tuple[float, ...] = ()
    """Scheduled times, oldest first."""
    missed: int = 0
    """Ticks that nobody will fire any more."""


def due(schedule: Schedule, decided_until: float | None, now: float, *, changed: bool = False) -> Due | None:
    """What to do about the ticks since `decided_until`, None where there is none.

    A function that is new to the clock, or whose schedule was changed, has missed nothing; nor has one whose last
    tick lies ahead, because Redis' clock was set back.
    """
    if decided_until is None:
        return Due(now)
    afresh = changed or decided_until > now + SET_BACK_S
    after = recent(schedule, decided_until, now) if afresh else decided_until
    newest = schedule.newest_due(after, now) if after < now else None
    if newest is None:
        return None
    on_time = now - newest - schedule.delay(newest) <= schedule.grace_s
    if afresh:
        return Due(newest, (newest,) if on_time else ())
    if schedule.missed == "all":
        fire = _newest(schedule.times, after, newest, schedule.at_most + on_time)
    else:
        fire = (newest,) if on_time or schedule.missed == "latest" else ()
    return Due(newest, fire, schedule.times.count(after, newest) - len(fire))


def recent(schedule: Schedule, decided_until: float, now: float) -> float:
    """From where to look for a tick that is still on time, whatever was decided under another clock or schedule."""
    begin = now - schedule.grace_s - schedule.jitter_s
    return max(begin, decided_until) if decided_until <= now + SET_BACK_S else begin


def _newest(times: Times, after: float, until: float, most: int) -> tuple[float, ...]:
    found: list[float] = []
    while len(found) < most and (tick := times.newest(after, until)) is not None:
        found.append(tick)
        until = tick - MICROSECOND
    return tuple(reversed(found))
