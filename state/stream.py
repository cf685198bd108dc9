"""The lab's streams and their consumer groups: at-least-once delivery, retries, dead letters, trimming."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from state.change import NOW, Change, Read, clock, entry, loosely, zscore
from state.client import Lab
from state.errors import NightjarError
from state.events import UNREADABLE, Event
from state.moves import Arg, GivenArgs
from state.reads import Store
from state.records import Record

UNSERVED_S = 7 * 86400.0
"""A group is dropped when its binding was not served for so long: its function was removed."""
OFF_S = 600.0
"""If no group was served for so long, the lab was off."""
SILENT_S = 3600.0
"""A consumer that was silent for so long is gone; living ones read every second."""
TRIM_STEP = 1000
PENDING_READ = 256
PAGE = 256
"""Events of a page."""
PAGES_KEPT = 16
BURST = 8
"""Events of a page from which more are likely to follow at once."""
GATHERED_S, LONGEST_S = 0.01, 0.2
"""Seconds for each event of such a page, unless it was full, and at most, until the next page is read.

So the more events there are, the fewer calls handle them. A single event waits for nothing.
"""
FOLLOWED_S = 1.0
"""Seconds for which a page waits in Redis for its first event."""
PASSING_S = 0.1
"""Seconds after which a group is moved past events that its binding does not want."""
Wanted = Callable[[Event], bool]


class GroupGone(NightjarError):
    """The consumer group no longer exists: its webhook was removed, or Redis was emptied."""


@dataclass(frozen=True)
class Pending:
    """An entry that was delivered and not acknowledged."""

    entry_id: str
    consumer: str
    idle_s: float
    deliveries: int


class DeadLetter(Record):
    """An event whose handler failed too often."""

    id: str
    binding: str
    error: str
    deliveries: int
    time: str
    event: dict[str, Any]


@dataclass(frozen=True)
class HeldGroup:
    """A consumer group whose unfinished entries cannot be dropped."""

    binding: str
    since: str
    """Id of the first unfinished entry; begins with milliseconds since 1970."""


@dataclass(frozen=True)
class TrimResult:
    """The result of a trimming: numbers of dropped and kept entries, dropped groups and consumers."""

    entries: int = 0
    kept: int = 0
    groups: tuple[str, ...] = ()
    consumers: int = 0
    held: HeldGroup | None = None

    def __add__(self, other: TrimResult) -> TrimResult:
        return TrimResult(
            self.entries + other.entries,
            other.kept,
            self.groups + other.groups,
            self.consumers + other.consumers,
            other.held,
        )


class Subscription:
    """One consumer of one group on one stream.

    A webhook's group is `made` with the webhook and removed with it; any other is created when it is first served, at
    the beginning of the stream.
    """

    def __init__(self, lab: Lab, stream: str, group: str, consumer: str, *, made: bool = False) -> None:
        self._lab = lab
        self.stream = lab.keys(stream)
        self.group = group
        self.consumer = consumer
        self._made = made
        self._binding = f"{stream} {group}"

    async def serve(self) -> bool:
        """Note that this group is served, and create it if it is missing; False if its webhook is gone."""
        if not self._made:
            try:
                await self._lab.command("XGROUP CREATE", self.stream, self.group, "0", "MKSTREAM")
            except ResponseError as problem:
                if not str(problem).startswith("BUSYGROUP"):
                    raise
        return await self._lab.change(self._note)

    async def _note(self, change: Change) -> bool:
        """Hours without any served group do not count as silence of each: the lab was off."""
        bindings = self._lab.keys("bindings")
        found = await change.read(
            {
                "now": clock(),
                "known": zscore(bindings, self._binding) if self._made else None,
                "served": loosely("ZRANGE", bindings, 0, -1, "WITHSCORES"),
            }
        )
        if self._made and found["known"] is None:
            return change.idle(False)
        served = found["served"]
        if served and (silence_s := found["now"] - float(served[-1])) > OFF_S:
            await change.read(zscore(bindings, served[-2]))  # of several processes one moves them
            for binding in served[::2]:
                change.zincrby(bindings, binding, silence_s)
        change.zadd(bindings, {self._binding: NOW})
        return True

    async def read(self, most: int, wait_s: float, wanted: Wanted | None = None) -> list[Event]:
        """New entries; waits at most `wait_s` for the first. Entries that are not `wanted` may be passed over.

        Raises:
            GroupGone: as do `pending`, `claim` and `keep`.
        """
        with self._group():
            answer = await self._lab.blocking(
                "XREADGROUP",
                "GROUP",
                self.group,
                self.consumer,
                "COUNT",
                most,
                "BLOCK",
                max(1, int(wait_s * 1000)),
                "STREAMS",
                self.stream,
                ">",
                wait_s=wait_s,
            )
        return self._events(answer[0][1]) if answer else []

    async def pending(self) -> list[Pending]:
        """Entries that a consumer has not acknowledged yet, oldest first."""
        with self._group():
            rows = await self._lab.command(
                "XPENDING", self.stream, self.group, "-", "+", PENDING_READ, parse_detail=True
            )
        return [
            Pending(
                row["message_id"],
                row["consumer"],
                row["time_since_delivered"] / 1000,
                row["times_delivered"],
            )
            for row in rows
        ]

    async def claim(self, ids: Sequence[str], idle_s: float) -> list[Event]:
        """Take over entries that were idle for `idle_s`; counts as one more delivery of each."""
        if not ids:
            return []
        with self._group():
            rows = await self._lab.command(
                "XCLAIM", self.stream, self.group, self.consumer, int(idle_s * 1000), *ids
            )
        return self._events([row for row in rows if row and row[1] is not None])

    async def keep(self, ids: Sequence[str]) -> None:
        """Reset the idle time of these entries, to keep other consumers from claiming them. Counts no delivery."""
        if ids:
            with self._group():
                await self._lab.command(
                    "XCLAIM", self.stream, self.group, self.consumer, 0, *ids, "JUSTID", parse_justid=True
                )

    async def done(self, ids: Sequence[str]) -> None:
        """Acknowledge entries."""
        if ids:
            await self._lab.command("XACK", self.stream, self.group, *ids)

    async def bury(self, event: Event, error: str, deliveries: int) -> None:
        """Move an entry to the dead letters."""
        await self._lab.move(
            "bury_event",
            keys={"stream": self.stream},
            args={
                "group": self.group,
                "entry": event.id,
                "error": error[:4000],
                "deliveries": deliveries,
                "event": json.dumps(event.envelope()),
            },
        )

    @contextmanager
    def _group(self) -> Iterator[None]:
        try:
            yield
        except ResponseError as problem:
            if not str(problem).startswith("NOGROUP"):
                raise
            raise GroupGone(f"the consumer group {self.group} does not exist any more") from problem

    def _events(self, rows: Sequence[Any]) -> list[Event]:
        return [
            Event.parse(self._lab.name, entry_id, dict(zip(fields[::2], fields[1::2], strict=True)))
            if isinstance(fields, list)
            else Event.parse(self._lab.name, entry_id, fields)
            for entry_id, fields in rows
        ]


class EventPages:
    """Pages of the event stream. All bindings of a process share them: an event is read and parsed once."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._pages: dict[str, asyncio.Task[list[Event]]] = {}
        """By the id that the events follow."""
        self._next_at = 0.0
        """Time of the monotonic clock before which no page is read."""

    async def after(self, entry_id: str, wait_s: float) -> list[Event]:
        """The next events after this one; waits at most `wait_s` for the first."""
        page = self._pages.get(entry_id)
        if page is None:
            page = asyncio.create_task(self._read(entry_id))
            self._pages[entry_id] = page
            for old in [i for i, each in self._pages.items() if each.done()][:-PAGES_KEPT]:
                del self._pages[old]
        await asyncio.wait([page], timeout=wait_s)
        if not page.done():
            return []
        if (page.exception() or not page.result()) and self._pages.get(entry_id) is page:
            del self._pages[entry_id]
        return page.result()

    async def _read(self, entry_id: str) -> list[Event]:
        await asyncio.sleep(self._next_at - time.monotonic())
        page = await self._stream.follow(entry_id, FOLLOWED_S, PAGE)
        if BURST <= len(page) < PAGE:
            self._next_at = time.monotonic() + min(len(page) * GATHERED_S, LONGEST_S)
        return page

    async def close(self) -> None:
        """End the reads that are under way."""
        for page in self._pages.values():
            page.cancel()
        await asyncio.gather(*self._pages.values(), return_exceptions=True)


class SharedSubscription(Subscription):
    """A consumer of the event stream that takes what it wants from shared pages, and passes over the rest."""

    def __init__(self, lab: Lab, group: str, consumer: str, pages: EventPages, *, made: bool) -> None:
        super().__init__(lab, "events", group, consumer, made=made)
        self._pages = pages
        self._cursor: str | None = None
        """The last event that was looked at; None: the group's last one has to be read first."""
        self._group_at = "0-0"
        """The group's last event."""
        self._passed = 0
        """Events that were looked at after the group's last one."""
        self._moved_at = 0.0

    async def read(self, most: int, wait_s: float, wanted: Wanted | None = None) -> list[Event]:
        """The wanted ones of the next page; waits at most `wait_s` for the first event, wanted or not."""
        try:
            if self._cursor is None:
                self._cursor = self._group_at = "0-0"
                await self._take([])
            page = await self._pages.after(self._cursor, min(wait_s, PASSING_S) if self._passed else wait_s)
            places = [n for n, e in enumerate(page) if wanted is None or e.type == UNREADABLE or wanted(e)][
                :most
            ]
            found = [page[n] for n in places]
            if page:
                looked_at = places[-1] + 1 if len(places) == most else len(page)
                self._cursor = page[looked_at - 1].id
                self._passed += looked_at
            lingers = self._passed and (not page or time.monotonic() - self._moved_at > FOLLOWED_S)
            if found or lingers:
                taken = await self._take([e.id for e in found])
                found = [e for e in found if e.id in taken]
        except BaseException:
            self._cursor = None  # what was not taken is looked at again
            raise
        return found

    async def _take(self, ids: Sequence[str]) -> Collection[str]:
        """Move the group to the cursor; answers which of these events no other consumer has."""
        answer = await self._lab.move(
            "take_events",
            keys={"stream": self.stream},
            args={
                "group": self.group,
                "consumer": self.consumer,
                "since": self._group_at,
                "passed": self._passed,
                "last": self._cursor or "0-0",
                "ids": ids,
            },
        )
        if not answer:
            raise GroupGone(f"the consumer group {self.group} does not exist any more")
        self._cursor, *taken = answer
        self._group_at, self._passed, self._moved_at = answer[0], 0, time.monotonic()
        return set(taken)


class Stream(Store):
    """The event stream and the dead letters."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self._pages = EventPages(self)

    async def close(self) -> None:
        """End the reads that are under way."""
        await self._pages.close()

    def events(self, group: str, consumer: str, *, made: bool = False) -> Subscription:
        """All events, for one binding."""
        return SharedSubscription(self._lab, group, consumer, self._pages, made=made)

    def redriven(self, binding: str, consumer: str, *, made: bool = False) -> Subscription:
        """Dead letters of one binding that an operator has redriven."""
        return Subscription(self._lab, f"redriven:{binding}", binding, consumer, made=made)

    async def dead(self, after: str | None, count: int) -> list[DeadLetter]:
        """Dead letters, oldest first."""
        begin = f"({after}" if after else "-"
        return await self._letters(begin, "+", "COUNT", count)

    async def _letters(self, *part: Arg) -> list[DeadLetter]:
        rows = await self._lab.command("XRANGE", self._lab.keys("dead_letters"), *part)
        return [DeadLetter.parse({**fields, "id": entry_id}) for entry_id, fields in rows]

    async def dead_count(self) -> int:
        """The number of dead letters."""
        return int(await self._lab.command("XLEN", self._lab.keys("dead_letters")))

    async def dead_letters(self, entry_id: str | None, binding: str | None) -> list[DeadLetter]:
        """The dead letter with this id, or all, or all of one binding."""
        if entry_id is not None:
            return await self._letters(entry_id, entry_id)
        found: list[DeadLetter] = []
        while page := await self.dead(found[-1].id if found else None, 500):
            found += page
        return [letter for letter in found if binding in (None, letter.binding)]

    async def redriven_to(self) -> set[str]:
        """Bindings whose redriven dead letters were served within UNSERVED_S."""
        members = await self._lab.command("ZRANGE", self._lab.keys("bindings"), 0, -1)
        return {str(m).partition(" ")[2] for m in members if str(m).startswith("redriven:")}

    async def revive(self, letter: DeadLetter) -> str:
        """Deliver a dead letter again; answers `ok`, `gone`, or `unbound` (its binding is not served)."""
        e = letter.event
        text = {
            "type": e["type"],
            "time": e["time"],
            "tag": e["tag"] or "",
            "subject": e["subject"],
            "data": json.dumps(e["data"]),
            "trace": e["trace"] or "",
            "origin": e["id"],
        }
        return await self._take_out(letter, text)

    async def discard(self, letter: DeadLetter) -> str:
        """Delete a dead letter; answers `ok` or `gone`."""
        return await self._take_out(letter, None)

    async def _take_out(self, letter: DeadLetter, event: Mapping[str, str] | None) -> str:
        keys, redriven = self._keys, f"redriven:{letter.binding}"
        dead, binding = keys("dead_letters"), f"{redriven} {letter.binding}"

        async def decide(change: Change) -> str:
            is_there, served_at = await change.read(entry(dead, letter.id), zscore(keys("bindings"), binding))
            if event is not None and served_at is None:
                return "unbound"
            if not is_there:
                return "gone"
            change.xdel(dead, letter.id)
            if event is not None:
                change.xadd(keys(redriven), event)
            return "ok"

        return await self._lab.change(decide)

    async def newest(self) -> str:
        """Id of the newest event, `0-0` before the first."""
        events = await self.last(1)
        return events[0].id if events else "0-0"

    async def last(self, count: int) -> list[Event]:
        """The newest events, oldest first."""
        return (await self.before(None, count))[::-1]

    async def before(self, entry_id: str | None, count: int) -> list[Event]:
        """Events before this one (None: all), newest first."""
        if entry_id is not None and not follows(entry_id, "0-0"):
            return []  # Redis refuses to look before its lowest id
        key = self._lab.keys("events")
        begin = f"({entry_id}" if entry_id else "+"
        rows = await self._lab.command("XREVRANGE", key, begin, "-", "COUNT", count)
        return [Event.parse(self._lab.name, i, fields) for i, fields in rows]

    async def after(self, entry_id: str, count: int) -> list[Event]:
        """Events after this one, oldest first."""
        key = self._lab.keys("events")
        rows = await self._lab.command("XRANGE", key, f"({entry_id}", "+", "COUNT", count)
        return [Event.parse(self._lab.name, i, fields) for i, fields in rows]

    async def follow(self, entry_id: str, wait_s: float, count: int = 500) -> list[Event]:
        """Events after this one; waits at most `wait_s` for the first."""
        answer = await self._lab.blocking(
            "XREAD",
            "COUNT",
            count,
            "BLOCK",
            int(wait_s * 1000),
            "STREAMS",
            self._lab.keys("events"),
            entry_id,
            wait_s=wait_s,
        )
        return [Event.parse(self._lab.name, i, fields) for i, fields in answer[0][1]] if answer else []

    async def gap_after(self, entry_id: str) -> str | None:
        """Id of the first kept event if events between this id and it were trimmed, else None."""
        key = self._lab.keys("events")
        if not await self._lab.command("EXISTS", key):
            return None
        info = await self._lab.command("XINFO STREAM", key)
        first = info["first-entry"]
        whole = int(info["entries-added"]) == int(info["length"])
        if whole or first is None or not follows(str(first[0]), entry_id):
            return None
        if entry_id == before(str(first[0])):  # nothing lies between them
            return None
        return str(first[0])

    async def bound_streams(self) -> list[str]:
        """Names of all streams that have bindings, `events` first."""
        bindings = await self._lab.command("ZRANGE", self._lab.keys("bindings"), 0, -1)
        return ["events", *sorted({str(b).partition(" ")[0] for b in bindings} - {"events"})]

    async def trim(self, stream: str, *, keep_s: float, keep: int) -> TrimResult:
        """Drop entries that every live group has finished, older than `keep_s` and not among the `keep` newest.

        It works in short steps, because other clients of Redis wait during each.
        """
        limits: GivenArgs = {
            "name": stream,
            "keep_s": keep_s,
            "keep": keep,
            "unserved_s": UNSERVED_S,
            "silent_s": SILENT_S,
            "most": TRIM_STEP,
            "forget": None if stream == "events" else 1,
        }
        whole = TrimResult()
        while True:
            answer = json.loads(
                await self._lab.move("trim_stream", keys={"stream": self._lab.keys(stream)}, args=limits)
            )
            held = answer.get("held")
            step = TrimResult(
                answer["dropped"],
                answer["length"],
                tuple(answer["groups"]),  # an empty table of Lua is an object in JSON
                answer["consumers"],
                HeldGroup(held["group"], held["since"]) if held else None,
            )
            whole += step
            if step.entries < TRIM_STEP:
                return whole

    async def lags(self) -> dict[str, Any]:
        """Length of the stream; per binding the undelivered and unacknowledged events, and the age of the oldest."""
        return await self._lab.one(lags(self._lab))


def lags(lab: Lab) -> Read[dict[str, Any]]:
    """As `Stream.lags`."""

    def meaning(answer: Sequence[Any]) -> dict[str, Any]:
        now, length, dead, *groups = answer
        bindings = {
            str(name): {
                "undelivered": None if undelivered < 0 else undelivered,
                "unacknowledged": unacknowledged,
                "oldest_s": round(max(0.0, float(now) - _parts(oldest)[0] / 1000), 1) if oldest else None,
            }
            for name, undelivered, unacknowledged, oldest in groups
        }
        return {"length": length, "dead_letters": dead, "bindings": bindings}

    return loosely(*lab.reading("read_lags"), to=meaning)


def follows(one: str, other: str) -> bool:
    """Whether an event id is greater than another; `<milliseconds>` alone means `<milliseconds>-0`."""
    return _parts(one) > _parts(other)


def before(entry_id: str) -> str:
    """The greatest id that is less than this one."""
    milliseconds, nth = _parts(entry_id)
    return f"{milliseconds}-{nth - 1}" if nth else f"{milliseconds - 1}-{2**63 - 1}"


def _parts(entry_id: str) -> tuple[int, int]:
    milliseconds, _, nth = entry_id.partition("-")
    return int(milliseconds), int(nth or 0)
