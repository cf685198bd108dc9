"""Which processes of the lab are alive; presence, not state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from state.client import Lab, time_of
from state.moves import Arg
from state.records import AgentLimit, stamp
from state.store import Store

FORGOTTEN_S = 3600.0
"""Seconds of silence after which announce_process.lua forgets a process."""


@dataclass(frozen=True)
class LiveProcess:
    """A process as it announced itself."""

    name: str
    """`<kind>@<host>:<pid>`."""
    seen_s_ago: float
    facts: Mapping[str, Any]
    """At least `kind`: web, events, clock, keeper or agent. An agent is no process of the lab."""


class Presence(Store):
    """Announces processes, and lists those that are alive."""

    async def announce(self, name: str, facts: Mapping[str, Any]) -> None:
        """Say that this process is alive."""
        await self._lab.move("announce_process", args={"name": name, "facts": json.dumps(dict(facts))})

    async def limit(self, tag: str, limit: AgentLimit) -> None:
        """Note that an agent has met a usage limit, once for each `since` and once a minute at most."""
        told = json.dumps({"agent": limit.agent, "until": stamp(limit.until), "said": limit.said})
        args = {"tag": tag, "agent": limit.agent, "limit": limit.model_dump_json(), "told": told}
        await self._lab.move("limit_agent", args=args)

    async def leave(self, name: str) -> None:
        """Say that this process ends."""
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
