"""Callers on this machine while the lab has no tokens: everybody is operator, but the runs of its workers."""

from __future__ import annotations

import asyncio
import time

from functions.process.kinship import is_held_below
from state.errors import Forbidden
from state.presence import Presence
from state.settings import host_name

REACHES_LAB = "runs_reach_lab"
"""The fact by which a worker says that its runs may open TCP connections."""
LOOK_AGAIN_S = 1.0
"""A worker is there for longer before its first run begins."""


class Neighbours:
    """The workers on this machine whose runs could call the lab."""

    def __init__(self, presence: Presence, within_s: float) -> None:
        self._presence, self._within_s = presence, within_s
        self._workers: tuple[int, ...] = ()
        self._looked_at = float("-inf")

    async def check(self, here: int, there: int) -> None:
        """Refuse what comes over a connection of a run; `here` is the caller's port, `there` ours.

        Raises:
            Forbidden: a run's process holds it, or whose it is cannot be told.
        """
        if time.monotonic() - self._looked_at >= LOOK_AGAIN_S:
            found = await self._presence.alive(self._within_s)
            self._looked_at = time.monotonic()
            self._workers = tuple(
                int(p.facts["pid"])
                for p in found
                if p.facts.get(REACHES_LAB) and p.facts.get("host") == host_name()
            )
        if not self._workers:
            return
        if await asyncio.to_thread(is_held_below, self._workers, here, there):
            raise Forbidden(
                "a training run of this machine's worker calls, or a caller that is gone: it is no operator",
                hint="a run reports by nightjar_report; where tokens are issued, every caller needs one",
            )
