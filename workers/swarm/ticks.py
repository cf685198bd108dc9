"""The swarm's side of a running assignment: reports travel as ticks, and answers come back as orders."""

from __future__ import annotations

import logging
import time
from typing import Any

from functions.lanes import Extension, Order, Source
from functions.rules.stopping.buckets import MOST_PROGRESS, bucket_of
from state.errors import NightjarError
from workers.swarm.leaving import Leaving
from workers.swarm.server import Assignment, Server

log = logging.getLogger(__name__)

EVERY_S = 0.5
"""Least seconds between two ticks; a report between them is not sent, unless the run is ranked there."""


class Ticks:
    """See functions.lanes.Watcher. A tick without an answer changes nothing: the run goes on."""

    def __init__(self, server: Server, given: Assignment, baseline: float, leaving: Leaving) -> None:
        self._server = server
        self._given = given
        self._baseline = baseline
        self._leaving = leaving
        self._sent_at = -EVERY_S
        self._ranked_at: set[float] = set()
        self._extension: Extension | None = None
        self.is_stopped = False
        """Whether the swarm has stopped the run."""

    async def built(self, source: Source) -> Order:
        """See Watcher: a swarm compares constants, not code."""
        return "continue"

    async def tick(self, metric: float, progress: float) -> Order | Extension:
        """See Watcher."""
        if not self.is_stopped and self._is_due(progress):
            await self._tell(metric, progress)
        return self._order()

    def _order(self) -> Order | Extension:
        """What the swarm has said so far."""
        return "stop" if self.is_stopped else self._extension or "continue"

    async def poll(self) -> Order:
        """See Watcher: only the worker's owner ends a run between two ticks."""
        return "stop" if self._leaving.returns or self.is_stopped else "continue"

    async def tail(self, text: str) -> None:
        """See Watcher: the swarm shows no logs."""

    def _is_due(self, progress: float) -> bool:
        bucket = bucket_of(progress)
        if bucket is not None and bucket not in self._ranked_at:
            self._ranked_at.add(bucket)
            return True
        return time.monotonic() - self._sent_at >= EVERY_S

    async def _tell(self, metric: float, progress: float) -> None:
        self._sent_at = time.monotonic()
        share = min(max(progress, 0.0), MOST_PROGRESS)
        request = {"id": self._given.exp_id, "p": share, "m": metric, **self._beside(metric)}
        try:
            told = await self._server.tick(request)
        except NightjarError as problem:  # it is refused, or the server is away: the next one tells more
            log.warning(
                "a tick of %s at %.2f was not taken: %s", self._given.exp_id, progress, problem.detail
            )
            return
        if told.action == "stop":
            self.is_stopped = True
            log.info("%s is stopped at %.2f: %s", self._given.exp_id, progress, told.reason)
        elif told.action == "extend" and told.budget is not None:
            extra_s = max(0.0, told.budget - self._given.budget_seconds)
            if self._extension is None:
                log.info("%s is extended to %g s", self._given.exp_id, told.budget)
            self._extension = Extension(extra_s=extra_s, budget_s=told.budget)

    def _beside(self, metric: float) -> dict[str, Any]:
        """What a tick says more: a report its difference to the baseline, a printed loss what it is."""
        if self._given.tick_source == "report":
            return {"d": metric - self._baseline}
        return {"tick_source": self._given.tick_source}
