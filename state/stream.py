"""The lab's streams, read through consumer groups: at least once, retried, buried when hopeless."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from redis.exceptions import ResponseError

from state.client import Lab
from state.errors import Unavailable
from state.events import Event


@dataclass(frozen=True)
class Pending:
    """An entry that was delivered and not acknowledged."""

    entry_id: str
    consumer: str
    idle_s: float
    deliveries: int


class Subscription:
    """One consumer group on one stream, as one consumer."""

    def __init__(self, lab: Lab, stream: str, group: str, consumer: str) -> None:
        self._lab = lab
        self.stream = stream
        self.group = group
        self.consumer = consumer

    async def ensure(self) -> None:
        """Create the group, from the stream's beginning, unless it is there."""
        try:
            await self._lab.command("XGROUP", "CREATE", self.stream, self.group, "0", "MKSTREAM")
        except ResponseError as problem:
            if not str(problem).startswith("BUSYGROUP"):
                raise

    async def read(self, most: int, wait_s: float) -> list[Event]:
        """New entries, waiting for the first at most so long."""
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

    async def pending(self, most: int = 256) -> list[Pending]:
        """Entries that somebody has not acknowledged yet, oldest first."""
        rows = await self._lab.command("XPENDING", self.stream, self.group, "-", "+", most, parse_detail=True)
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
        """Take entries over that are still idle for so long; each counts as one more delivery."""
        if not ids:
            return []
        rows = await self._lab.command(
            "XCLAIM", self.stream, self.group, self.consumer, int(idle_s * 1000), *ids
        )
        return self._events([row for row in rows if row and row[1] is not None])

    async def keep(self, ids: Sequence[str]) -> None:
        """Say that these are being worked on: nobody claims them, no delivery is counted."""
        if ids:
            await self._lab.command(
                "XCLAIM", self.stream, self.group, self.consumer, 0, *ids, "JUSTID", parse_justid=True
            )

    async def done(self, ids: Sequence[str]) -> None:
        """Acknowledge."""
        if ids:
            await self._lab.command("XACK", self.stream, self.group, *ids)

    async def bury(self, event: Event, error: str, deliveries: int) -> None:
        """Move a hopeless entry to the dead letters."""
        await self._lab.run(
            "bury_event",
            [self.stream, self._lab.keys("dead_letters")],
            [self.group, event.id, error[:4000], deliveries, json.dumps(asdict(event))],
        )

    def _events(self, rows: Sequence[Any]) -> list[Event]:
        return [
            Event.parse(self._lab.name, entry_id, dict(zip(fields[::2], fields[1::2], strict=True)))
            if isinstance(fields, list)
            else Event.parse(self._lab.name, entry_id, fields)
            for entry_id, fields in rows
        ]


class Stream:
    """The event stream and the ticks beside it."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def events(self, group: str, consumer: str) -> Subscription:
        """Everything that happens, for one binding."""
        return Subscription(self._lab, self._lab.keys("events"), group, consumer)

    def ticks(self, function: str, consumer: str) -> Subscription:
        """The clock's ticks for one function."""
        return Subscription(self._lab, self._lab.keys("ticks", function), "cron", consumer)

    async def fire(self, function: str, scheduled: float) -> str:
        """Claim a tick and put it on its function's stream: fired, or taken by another clock, or early."""
        answer = await self._lab.run(
            "claim_tick",
            [self._lab.keys("tick", function), self._lab.keys("ticks", function)],
            [scheduled, function],
        )
        return str(answer)

    async def last(self, count: int) -> list[Event]:
        """The newest events, oldest first."""
        rows = await self._lab.command("XREVRANGE", self._lab.keys("events"), "+", "-", "COUNT", count)
        return [
            Event.parse(
                self._lab.name,
                entry_id,
                fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True)),
            )
            for entry_id, fields in reversed(rows)
        ]

    async def lags(self) -> dict[str, Any]:
        """Length of the stream, and per binding what is not delivered and not acknowledged yet."""
        key = self._lab.keys("events")
        length, dead = await self._lab.pipeline([("XLEN", key), ("XLEN", self._lab.keys("dead_letters"))])
        try:
            groups = await self._lab.command("XINFO", "GROUPS", key)
        except (ResponseError, Unavailable):
            groups = []
        bindings = {}
        for group in groups:
            facts = group if isinstance(group, dict) else dict(zip(group[::2], group[1::2], strict=True))
            bindings[str(facts["name"])] = {
                "undelivered": facts.get("lag"),
                "unacknowledged": facts.get("pending"),
            }
        return {"length": int(length), "dead_letters": int(dead), "bindings": bindings}
