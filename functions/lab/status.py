"""lab::status shows the lab's processes, queues and lags."""

from __future__ import annotations

from typing import Any

from functions.contract import Http, Request, Response, function
from functions.table import table
from functions.views.event_hints import event_hints
from functions.views.gpus import pool_counts
from functions.views.hints import ADD_WORKER
from state.experiments import Experiments
from state.pool import Pool
from state.presence import Presence
from state.schedules import Schedules
from state.settings import Settings
from state.stream import Stream
from state.tags import Tags


class Ask(Request):
    """Nothing to ask for."""


class Status(Response):
    lab: str
    processes: list[dict[str, Any]]
    counts: dict[str, int]
    """Living processes by kind."""
    gpu_pool: dict[str, int]
    queue: int
    tags: int
    paused_tags: list[str]
    events: dict[str, Any]
    """Length of the stream, and per binding what is undelivered and unacknowledged, and how old the oldest is."""
    hints: list[str]


@function("lab::status", Http("GET", "/api/lab/status"), role="viewer")
async def status(
    request: Ask,
    presence: Presence,
    pool: Pool,
    experiments: Experiments,
    tags: Tags,
    stream: Stream,
    schedules: Schedules,
    settings: Settings,
) -> Status:
    """Who is alive, what waits, how far the event handlers are behind."""
    alive = await presence.alive(settings.stale_s)
    kinds = [str(p.facts.get("kind")) for p in alive]
    queue = await experiments.queue_length()
    gpus = pool_counts(await pool.all(), await pool.now(), settings.stale_s)
    hints = []
    if queue and not gpus["idle"] + gpus["training"]:
        hints.append(f"{queue} experiments wait and {ADD_WORKER}")
    paused = await tags.paused()
    hints += [f"{tag} is paused: POST /api/tag/unpause runs what waits" for tag in paused[:10]]
    hints += [
        f"no {kind} process is alive: start the lab with ./nightjar up"
        for kind in ("events", "clock")
        if kind not in kinds
    ]
    ticking = [name for name, declared in table().items() if declared.clock is not None]
    hints += [
        f"the clock does not fire {name}, it is paused: ./nightjar call cron::resume --function {name}"
        for name in await schedules.paused(ticking)
    ]
    events = await stream.lags()
    hints += event_hints(events)
    return Status(
        lab=settings.lab,
        processes=[{"name": p.name, "seen_s_ago": round(p.seen_s_ago, 1), **p.facts} for p in alive],
        counts={kind: kinds.count(kind) for kind in sorted(set(kinds))},
        gpu_pool=gpus,
        queue=queue,
        tags=await tags.count(),
        paused_tags=paused,
        events=events,
        hints=hints,
    )
