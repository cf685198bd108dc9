"""Which processes of the lab are alive; presence, not state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from state.change import NOW, Change, clock, exists, hmget, loosely, size
from state.client import Lab, time_of
from state.moves import Arg
from state.records import AgentLimit, stamp
from state.store import Store

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
        time, rows, facts = await self._lab.pipeline([("TIME",), *reading_presence(self._lab)])
        return alive_of(time_of(time), rows, facts, within_s)

    async def author(self, within_s: float) -> str | None:
        """The language model of a process of the lane `pi` that was heard of within so many seconds; None: none."""
        found = [p.facts.get("author") for p in await self.alive(within_s) if p.facts["kind"] == "pi"]
        return next((str(author) for author in found if author), None)

    async def repository_head(self) -> str | None:
        """HEAD of the repository that the newest worker trains from; None without a worker."""
        heads = [p.facts.get("repository_head") for p in await self.alive(3600)]
        return next((str(head) for head in reversed(heads) if head), None)


def reading_presence(lab: Lab) -> Sequence[Sequence[Arg]]:
    """Two commands of a pipeline, whose answers `alive_of` takes."""
    keys = lab.keys
    return [("ZRANGE", keys("processes"), 0, -1, "WITHSCORES"), ("HGETALL", keys("process_facts"))]


def alive_of(now: float, rows: Sequence[str], facts: Mapping[str, str], within_s: float) -> list[LiveProcess]:
    """Processes heard of within that many seconds, newest last."""
    return [
        LiveProcess(name, now - float(at), json.loads(facts[name]))
        for name, at in zip(rows[::2], rows[1::2], strict=True)
        if name in facts and now - float(at) <= within_s
    ]
