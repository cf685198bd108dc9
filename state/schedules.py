"""The clock's decisions for each function: fired, missed and skipped firings, and pauses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from state.change import NOW, Asked, Change, clock, exists, get, hgetall, hmget
from state.client import Lab
from state.events import Event
from state.reads import Store
from state.records import Record, stamp
from state.stream import Subscription, follows

Became = Literal["fired", "waits", "overlaps"]
REQUEST_TTL_S = 24 * 3600
MOST_KEPT = 1000
"""Firings of one function that are kept; some more may be."""
DECIDING = ("until", "fired", "by_hand", "untold", "waiting", "paused_at")
"""Fields of a schedule that decide about its next firing, or that each one changes."""


class Firings(Record):
    """One function's firings so far; times are seconds of Redis' clock."""

    until: float | None = None
    """Every firing up to here is decided; None where no clock has seen the function yet."""
    text: str = ""
    """The trigger that this was decided by, in words."""
    fired: int = 0
    missed: int = 0
    skipped: int = 0
    """Dropped because an earlier firing was unhandled."""
    by_hand: int = 0
    fired_scheduled: float | None = None
    fired_at: float | None = None
    untold: int = 0
    """Missed firings that the next one tells of."""
    waiting: str | None = None
    """A firing that waits for the one before it, by the policy `queue`."""
    paused_at: float | None = None
    paused_reason: str | None = None


class ScheduleState(NamedTuple):
    """A schedule at one moment."""

    now: float
    handled: int
    """Firings whose handler works, or died."""
    unread: int
    firings: Firings

    @property
    def is_busy(self) -> bool:
        """Whether a firing is unhandled."""
        return self.handled + self.unread > 0

    @property
    def waiting(self) -> int:
        """Firings whose handler has not begun."""
        return self.unread + (self.firings.waiting is not None)


class Schedules(Store):
    """The firings of every function that the clock fires."""

    def subscription(self, function: str, consumer: str) -> FiringSubscription:
        """The firings that wait for this function."""
        return FiringSubscription(self._lab, function, consumer)

    async def looks(self, functions: Sequence[str], change: Change | None = None) -> list[ScheduleState]:
        """Schedules of these functions; two round trips. A `change` holds with their firings so far.

        Only a firing that was made counts against the next one. One that is handled meanwhile does not matter.
        """
        keys, source = self._lab.keys, change or self._lab
        places = {name: keys("ticks", name) for name in functions}
        reads: dict[str, Asked | None] = {"now": clock()}
        for name, firings in places.items():
            reads[name] = hgetall(keys("tick", name), *DECIDING)
            reads[firings] = exists(firings).loose()
        found = await source.read(reads)
        made: dict[str, Asked | None] = {}
        for name, firings in places.items():
            if found[firings]:
                made[name] = ("XINFO GROUPS", firings)
                made[firings] = ("XREVRANGE", firings, "+", "-", "COUNT", 1)
        told = await source.read(made) if made else {}
        return [
            ScheduleState(
                found["now"],
                *_unhandled(name, told.get(name, ()), told.get(firings)),
                Firings.parse(found[name]),
            )
            for name, firings in places.items()
        ]

    async def look(self, function: str, change: Change | None = None) -> ScheduleState:
        (found,) = await self.looks([function], change)
        return found

    async def claim(
        self,
        function: str,
        text: str,
        before: float | None,
        until: float,
        *,
        fire: float | None,
        missed: int,
        overlap: str,
        holds_until: float,
    ) -> Literal["claimed", "taken", "paused", "early", "late"]:
        """Decide the firings up to `until`, if they are still decided only up to `before`.

        After `holds_until` the decision is late: the process was stopped since it looked, and must look again.
        """
        schedule = self._lab.keys("tick", function)

        async def decide(change: Change) -> Literal["claimed", "taken", "paused", "early", "late", "waits"]:
            look = await self.look(function, change)
            firings, now = look.firings, look.now
            if firings.paused_at is not None:
                return "paused"
            if until > now:
                return "early"
            if now > holds_until:
                return "late"
            if firings.until != before:
                return "taken"
            change.before(holds_until)
            change.hset(schedule, {"until": until, "text": text})
            change.hincrby(schedule, "missed", missed)
            untold, became = firings.untold + missed, None
            if fire is not None:
                became = _fire_unless_overlapping(change, function, look, overlap, fire, untold, False)
                if became == "overlaps":
                    change.hincrby(schedule, "skipped")
                else:
                    untold = 0
            change.hset(schedule, {"untold": untold})
            return "waits" if became == "waits" else "claimed"

        answer = await self._lab.change(decide)
        if answer != "waits":
            return answer
        await self.release(function)  # the one before it may have been handled meanwhile
        return "claimed"

    async def run(self, function: str, overlap: str, request_id: str | None) -> tuple[Became, float]:
        """Fire now, by hand; the same request id again gets the first answer, for 24 hours."""
        digest = hashlib.sha256(f"{function}|{request_id}".encode()).hexdigest()
        answer = self._lab.keys("runs", digest) if request_id else None

        async def decide(change: Change) -> tuple[Became, float]:
            first = (await change.read(get(answer)))[0] if answer else None
            if first is not None:
                told, at = first.split(" ")
                return "waits" if told == "waits" else "fired", float(at)
            look = await self.look(function, change)
            became = _fire_unless_overlapping(change, function, look, overlap, look.now, 0, True)
            if answer and became != "overlaps":
                change.set(answer, f"{became} {look.now!r}", lasts_s=REQUEST_TTL_S)
            return became, look.now

        became, when = await self._lab.change(decide)
        if became == "waits":
            await self.release(function)  # the one before it may have been handled meanwhile
        return became, when

    async def pause(self, function: str, reason: str) -> float:
        """Stop firing it; answers since when it is paused."""
        schedule = self._lab.keys("tick", function)

        async def decide(change: Change) -> float:
            found, now = await change.read(hmget(schedule, "paused_at"), clock())
            if (since := found["paused_at"]) is not None:
                return float(since)
            change.hset(schedule, {"paused_at": now, "paused_reason": reason})
            change.emit("cron.paused", None, function, {"function": function, "reason": reason})
            return now

        return await self._lab.change(decide)

    async def resume(self, function: str) -> float | None:
        """Fire it again from its next scheduled time on; answers since when it was paused, None where it was not."""
        schedule = self._lab.keys("tick", function)

        async def decide(change: Change) -> float | None:
            found, now = await change.read(hmget(schedule, "paused_at"), clock())
            if (since := found["paused_at"]) is None:
                return None
            change.hdel(schedule, "paused_at", "paused_reason")
            change.hset(schedule, {"until": NOW})
            told = {"function": function, "paused_s": now - float(since)}
            change.emit("cron.resumed", None, function, told)
            return float(since)

        return await self._lab.change(decide)

    async def release(self, function: str) -> None:
        """Let a waiting firing go ahead if the one before it is handled."""

        async def decide(change: Change) -> None:
            _release(change, function, await self.look(function, change))

        await self._lab.change(decide)


class FiringSubscription(Subscription):
    """The firings of one function: handling one lets the next go ahead."""

    def __init__(self, lab: Lab, function: str, consumer: str) -> None:
        super().__init__(lab, f"ticks:{function}", function, consumer)

    async def done(self, ids: Sequence[str]) -> None:
        await super().done(ids)
        if ids:
            await Schedules(self._lab).release(self.group)

    async def bury(self, event: Event, error: str, deliveries: int) -> None:
        """Move a hopeless firing to the dead letters."""
        await super().bury(event, error, deliveries)
        await Schedules(self._lab).release(self.group)


def _unhandled(
    function: str, groups: Sequence[Mapping[str, Any]], newest: Sequence[Any] | None
) -> tuple[int, int]:
    """Firings that a handler has read and not handled, and those that wait unread."""
    group = next((group for group in groups if group["name"] == function), None)
    read = "0-0" if group is None else str(group["last-delivered-id"])
    is_read = not newest or not follows(str(newest[0][0]), read)
    handled, lag = (0, None) if group is None else (int(group["pending"]), group.get("lag"))
    return handled, 0 if is_read else max(int(lag or 0), 1)


def _release(change: Change, function: str, look: ScheduleState) -> bool:
    """Put the waiting firing before its function, if the earlier one is handled."""
    if look.firings.waiting is None or look.is_busy:
        return False
    scheduled, missed, by_hand = look.firings.waiting.split(" ")
    change.hdel(change.lab.keys("tick", function), "waiting")
    _fire(change, function, look.now, float(scheduled), int(missed), by_hand == "true")
    return True


def _fire_unless_overlapping(
    change: Change,
    function: str,
    look: ScheduleState,
    overlap: str,
    scheduled: float,
    missed: int,
    by_hand: bool,
) -> Became:
    """Fire, or wait, or drop it, as the overlap policy says."""
    has_released = _release(change, function, look)
    if overlap == "allow" or not (has_released or look.is_busy):
        _fire(change, function, look.now, scheduled, missed, by_hand)
        return "fired"
    if overlap != "queue" or (look.firings.waiting is not None and not has_released):
        return "overlaps"
    waiting = f"{scheduled!r} {missed} {json.dumps(by_hand)}"
    change.hset(change.lab.keys("tick", function), {"waiting": waiting})
    return "waits"


def _fire(change: Change, function: str, now: float, scheduled: float, missed: int, by_hand: bool) -> None:
    """Put a firing before its function."""
    schedule = change.lab.keys("tick", function)
    data = json.dumps({"scheduled": scheduled, "fired": now, "missed": missed, "by_hand": by_hand})
    told = {
        "type": "cron.tick",
        "time": stamp(now),
        "tag": "",
        "subject": function,
        "data": data,
        "trace": "",
    }
    change.xadd(change.lab.keys("ticks", function), told, most=MOST_KEPT)
    change.hset(schedule, {"fired_scheduled": scheduled, "fired_at": now})
    change.hincrby(schedule, "by_hand" if by_hand else "fired")
