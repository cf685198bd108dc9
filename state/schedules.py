"""The clock's decisions for each function: fired, missed and skipped firings, and pauses."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from state.change import NOW, Change, clock, hmget
from state.client import Lab
from state.events import Event
from state.moves import Arg
from state.records import Record
from state.stream import Subscription

REQUEST_TTL_S = 24 * 3600


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
    def waiting(self) -> int:
        """Firings whose handler has not begun."""
        return self.unread + (self.firings.waiting is not None)


class Schedules:
    """The firings of every function that the clock fires."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def subscription(self, function: str, consumer: str) -> FiringSubscription:
        """The firings that wait for this function."""
        return FiringSubscription(self._lab, function, consumer)

    async def looks(self, functions: Sequence[str]) -> list[ScheduleState]:
        """Schedules of these functions; one round trip."""
        answers = await self._lab.pipeline(
            [
                self._lab.reading("read_schedule", keys=_keys(self._lab, name), args={"function": name})
                for name in functions
            ]
        )
        return [
            ScheduleState(
                now=float(now),
                handled=int(handled),
                unread=int(unread),
                firings=Firings.parse(dict(zip(flat[::2], flat[1::2], strict=True))),
            )
            for now, handled, unread, *flat in answers
        ]

    async def look(self, function: str) -> ScheduleState:
        """Schedule of one function."""
        (found,) = await self.looks([function])
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
        answer: Literal["claimed", "taken", "paused", "early", "late"] = await self._move(
            "claim_firings",
            function,
            text=text,
            before=before,
            until=until,
            fire=fire,
            missed=missed,
            overlap=overlap,
            holds_until=holds_until,
        )
        return answer

    async def run(
        self, function: str, overlap: str, request_id: str | None
    ) -> tuple[Literal["fired", "waits", "overlaps"], float]:
        """Fire now, by hand; the same request id again gets the first answer, for 24 hours."""
        answer = None
        if request_id:
            answer = self._lab.keys("runs", hashlib.sha256(f"{function}|{request_id}".encode()).hexdigest())
        became, when = await self._lab.move(
            "run_schedule",
            keys={**_keys(self._lab, function), "answer": answer},
            args={"function": function, "overlap": overlap, "ttl_s": REQUEST_TTL_S},
        )
        return became, float(when)

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
        await self._move("finish_firings", function)

    async def _move(self, name: str, function: str, **args: Arg | Sequence[Arg] | None) -> Any:
        keys = _keys(self._lab, function)
        return await self._lab.move(name, keys=keys, args={"function": function, **args})


class FiringSubscription(Subscription):
    """The firings of one function: handling one lets the next go ahead."""

    def __init__(self, lab: Lab, function: str, consumer: str) -> None:
        super().__init__(lab, f"ticks:{function}", function, consumer)

    async def done(self, ids: Sequence[str]) -> None:
        """Acknowledge."""
        if ids:
            await self._finish(ids)

    async def bury(self, event: Event, error: str, deliveries: int) -> None:
        """Move a hopeless firing to the dead letters."""
        await super().bury(event, error, deliveries)
        await self._finish()

    async def _finish(self, ids: Sequence[str] = ()) -> None:
        keys = _keys(self._lab, self.group)
        await self._lab.move("finish_firings", keys=keys, args={"function": self.group, "ids": list(ids)})


def _keys(lab: Lab, function: str) -> dict[str, str]:
    return {"schedule": lab.keys("tick", function), "firings": lab.keys("ticks", function)}
