"""The lab at a glance: who is alive, what waits, how far the event handlers are behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from state.client import time_of
from state.leases import Roster
from state.pool import gpus_of, listed_gpus
from state.presence import LiveProcess, alive_of, reading_presence
from state.store import Store
from state.stream import lags_of, reading_lags
from state.swarms import ACTIVE_S


@dataclass(frozen=True)
class Overview:
    processes: Sequence[LiveProcess]
    gpus: Roster
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
        time, rows, facts, gpus, tags, paused, swarms, events, *is_paused = await lab.pipeline(
            [
                ("TIME",),
                *reading_presence(lab),
                listed_gpus(lab, "gpus"),
                ("ZRANGE", keys("tags"), 0, -1),
                ("ZRANGE", keys("paused"), 0, -1),
                ("ZRANGE", keys("swarms"), 0, -1),
                reading_lags(lab),
                *(("HEXISTS", keys("tick", name), "paused_at") for name in ticking),
            ]
        )
        now = time_of(time)
        counted = await lab.pipeline(
            [
                *(("ZCARD", keys.status(tag, "queued", "")[0]) for tag in tags),
                *(("ZCOUNT", keys("swarm_seen", tag), now - ACTIVE_S, "+inf") for tag in swarms),
            ]
        )
        return Overview(
            processes=alive_of(now, rows, facts, alive_s),
            gpus=Roster(now, gpus_of(gpus)),
            queued=sum(int(card) for card in counted[: len(tags)]),
            tags=len(tags),
            paused_tags=paused,
            paused_functions=[name for name, yes in zip(ticking, is_paused, strict=True) if yes],
            swarm_workers=sum(int(workers) for workers in counted[len(tags) :]),
            events=lags_of(events),
        )
