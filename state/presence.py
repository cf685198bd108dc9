"""The lab at a glance: its living processes, the work that waits, and counts. No decision rests on it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from state import reads
from state.change import NOW, Asked, Change, clock, exists, hmget, loosely, size
from state.client import Lab
from state.reads import ACTIVE_S, Store
from state.records import AgentLimit, Gpu, stamp
from state.stream import lags

FORGOTTEN_S = 3600.0
"""Seconds of silence after which a process is forgotten. One that is heard of just then comes back the next time."""
LIMITED_MOST = 256
NOTED_S = 60.0
"""Most agents of a tag whose usage limits are noted, and the least seconds from one limit of an agent to the next."""


@dataclass(frozen=True)
class LiveProcess:
    name: str
    """`<kind>@<host>:<pid>`."""
    seen_s_ago: float
    facts: Mapping[str, Any]
    """At least `kind`: web, events, clock, keeper or agent. An agent is no process of the lab."""


class Presence(Store):
    """Announces processes, and lists those that are alive."""

    async def announce(self, name: str, facts: Mapping[str, Any]) -> None:
        """Say that this process is alive."""
        processes, known = self._keys("processes"), self._keys("process_facts")

        async def decide(change: Change) -> None:
            oldest, now = await change.read(loosely("ZRANGE", processes, "0", "99", "WITHSCORES"), clock())
            seen = zip(oldest[::2], map(float, oldest[1::2]), strict=True)
            silent = [other for other, at in seen if now - at >= FORGOTTEN_S and other != name]
            change.zadd(processes, {name: NOW})
            change.hset(known, {name: json.dumps(dict(facts))})
            if silent:
                change.zrem(processes, *silent)
                change.hdel(known, *silent)

        await self._lab.change(decide)

    async def limit(self, tag: str, limit: AgentLimit) -> None:
        """Note that an agent has met a usage limit, once for each `since` and once a minute at most."""
        limits, agent = self._keys("agent_limits", tag), limit.agent

        async def decide(change: Change) -> None:
            is_tag, stored, count, now = await change.read(
                exists(self._keys.tag(tag)), hmget(limits, agent), size(limits), clock()
            )
            before = json.loads(stored[agent] or '{"since": null, "noted": 0, "times": 0}')
            is_full = stored[agent] is None and count >= LIMITED_MOST
            if is_full or not is_tag or before["since"] == limit.since or now - before["noted"] < NOTED_S:
                return
            noted = limit.model_dump() | {"times": before["times"] + 1, "noted": now}
            change.hset(limits, {agent: json.dumps(noted)})
            told = {"agent": agent, "until": stamp(limit.until), "said": limit.said}
            change.emit("agent.limited", tag, agent, told)

        await self._lab.change(decide)

    async def leave(self, name: str) -> None:
        keys = self._lab.keys
        await self._lab.pipeline([("ZREM", keys("processes"), name), ("HDEL", keys("process_facts"), name)])

    async def alive(self, within_s: float) -> list[LiveProcess]:
        """Processes heard of within that many seconds, newest last."""
        return alive_in(await self._lab.read(presence_reads(self._lab)), within_s)

    async def author(self, within_s: float) -> str | None:
        """The language model of a process of the lane `pi` that was heard of within so many seconds; None: none."""
        found = [p.facts.get("author") for p in await self.alive(within_s) if p.facts["kind"] == "pi"]
        return next((str(author) for author in found if author), None)

    async def repository_head(self) -> str | None:
        """HEAD of the repository that the newest worker trains from; None without a worker."""
        heads = [p.facts.get("repository_head") for p in await self.alive(3600)]
        return next((str(head) for head in reversed(heads) if head), None)


class Tallies(Store):
    """Counts of all processes that ever ran, summed by name; for graphs, not for decisions."""

    async def add(self, counted: Mapping[str, float], times: Iterable[str] = ()) -> None:
        """Add to the sums, all at once, and set each name in `times` to this moment."""
        tallies = self._keys("tallies")

        async def decide(change: Change) -> None:
            (before,) = await change.read(hmget(tallies, *counted))
            sums = {name: float(before[name] or 0) + n for name, n in counted.items()}
            change.hset(tallies, {**sums, **dict.fromkeys(times, NOW)})

        await self._lab.change(decide)

    async def all(self) -> dict[str, float]:
        """Every sum and time by its name."""
        stored = await self._lab.hash(self._lab.keys("tallies"))
        return {name: float(amount) for name, amount in stored.items()}


def presence_reads(lab: Lab) -> dict[str, Asked]:
    """Reads for `alive_in`, with Redis' clock."""
    seen = ("ZRANGE", lab.keys("processes"), 0, -1, "WITHSCORES")
    return {"now": clock(), "seen": seen, "facts": ("HGETALL", lab.keys("process_facts"))}


def alive_in(found: Mapping[str, Any], within_s: float) -> list[LiveProcess]:
    """Processes heard of within that many seconds, newest last."""
    rows, now, facts = found["seen"], found["now"], found["facts"]
    return [
        LiveProcess(name, now - float(at), json.loads(facts[name]))
        for name, at in zip(rows[::2], rows[1::2], strict=True)
        if name in facts and now - float(at) <= within_s
    ]


@dataclass(frozen=True)
class Overview:
    now: float
    processes: Sequence[LiveProcess]
    gpus: Sequence[Gpu]
    queued: int
    """Experiments that wait for a GPU."""
    tags: int
    paused_tags: Sequence[str]
    """Longest paused first."""
    paused_functions: Sequence[str]
    """Functions of the clock that it does not fire."""
    swarm_workers: int
    """Of all swarms, heard of in the last ten minutes."""
    events: Mapping[str, Any]
    """As `Stream.lags`."""


class Overviews(Store):
    async def read(self, ticking: Sequence[str], *, alive_s: float) -> Overview:
        """The state of the lab; two round trips.

        `ticking` are the clock's functions. A process counts as alive if it was seen within `alive_s` seconds.
        """
        lab, keys = self._lab, self._lab.keys
        found = await lab.read(
            {
                **presence_reads(lab),
                "gpus": reads.gpus(lab),
                "tags": ("ZRANGE", keys("tags"), 0, -1),
                "paused_tags": ("ZRANGE", keys("paused"), 0, -1),
                "swarms": ("ZRANGE", keys("swarms"), 0, -1),
                "events": lags(lab),
                **{name: reads.number("HEXISTS", keys("tick", name), "paused_at") for name in ticking},
            }
        )
        tags, swarms, now = found["tags"], found["swarms"], found["now"]
        counted = await lab.pipeline(
            [
                *(("ZCARD", keys.status(tag, "queued", "")[0]) for tag in tags),
                *(("ZCOUNT", keys("swarm_seen", tag), now - ACTIVE_S, "+inf") for tag in swarms),
            ]
        )
        return Overview(
            now=now,
            processes=alive_in(found, alive_s),
            gpus=found["gpus"],
            paused_tags=found["paused_tags"],
            events=found["events"],
            queued=sum(int(card) for card in counted[: len(tags)]),
            tags=len(tags),
            paused_functions=[name for name in ticking if found[name]],
            swarm_workers=sum(int(workers) for workers in counted[len(tags) :]),
        )
