"""Which processes of the lab are alive; presence, not state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from state.client import Lab


@dataclass(frozen=True)
class Process:
    """One process of the lab."""

    name: str
    """`<kind>@<host>:<pid>`."""
    seen_s_ago: float
    facts: Mapping[str, Any]
    """At least `kind`: web, events, clock or keeper."""


class Presence:
    """Processes announce themselves; others ask which are alive."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    async def announce(self, name: str, facts: Mapping[str, Any]) -> None:
        """Say that this process is alive."""
        await self._lab.move("announce_process", args={"name": name, "facts": json.dumps(dict(facts))})

    async def leave(self, name: str) -> None:
        """Say that this process ends."""
        keys = self._lab.keys
        await self._lab.command("ZREM", keys("processes"), name)
        await self._lab.command("HDEL", keys("process_facts"), name)

    async def alive(self, within_s: float) -> list[Process]:
        """Processes heard of within that many seconds, newest last."""
        keys = self._lab.keys
        time, rows = await self._lab.pipeline([("TIME",), ("ZRANGE", keys("processes"), 0, -1, "WITHSCORES")])
        now = float(time[0]) + float(time[1]) / 1e6
        ages = {name: now - float(at) for name, at in zip(rows[::2], rows[1::2], strict=True)}
        names = [name for name, age in ages.items() if age <= within_s]
        if not names:
            return []
        facts = await self._lab.command("HMGET", keys("process_facts"), *names)
        return [
            Process(name, ages[name], json.loads(text))
            for name, text in zip(names, facts, strict=True)
            if text is not None
        ]

    async def repository_head(self) -> str | None:
        """HEAD of the repository that the newest worker trains from; None without a worker."""
        heads = [p.facts.get("repository_head") for p in await self.alive(3600)]
        return next((str(head) for head in reversed(heads) if head), None)
