"""lab::status shows the lab's processes, queue and event lags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from functions.contract import Http, Request, Response, function
from functions.table import table
from functions.views.gpus import pool_counts
from functions.views.hints import ADD_WORKER, event_hints, standstill
from state.overview import Overview, Overviews
from state.presence import LiveProcess
from state.program import as_typed
from state.records import stamp
from state.settings import Settings


class ReadStatus(Request):
    """No fields."""


class AgentStatus(Response):
    """An agent that `nightjar agent` has at work."""

    agent: str
    tag: str
    state: str
    """starting, working, waiting (until it is started again), or limited: the same, after a usage limit."""
    limit: str | None = None
    """The line in which it reported that limit."""
    until: str | None = None
    """When a limited one is started again."""
    starts: int
    experiments: int
    tokens: int | None
    """Its usage; None if its tool does not print it."""
    cost_usd: float | None
    seen_s_ago: float


class LabStatus(Response):
    lab: str
    processes: list[dict[str, Any]]
    counts: dict[str, int]
    """Living processes by kind."""
    agents: list[AgentStatus]
    gpu_pool: dict[str, int]
    queue: int
    tags: int
    paused_tags: list[str]
    swarm_workers: int
    """Workers of all swarms that were heard of in the last ten minutes."""
    events: dict[str, Any]
    """Length of the stream; per binding the numbers of undelivered and unacknowledged events, age of the oldest."""
    hints: list[str]


@function("lab::status", Http("GET", "/api/lab/status"), role="viewer")
async def status(request: ReadStatus, overviews: Overviews, settings: Settings) -> LabStatus:
    """The lab's living processes, GPUs, queue, paused tags and event lags, with hints."""
    timed = [name for name, declared in table().items() if declared.clock is not None]
    lab = await overviews.read(timed, alive_s=settings.stale_s)
    gpus = pool_counts(lab.gpus.gpus, lab.gpus.now, settings.stale_s)
    agents = [p for p in lab.processes if p.facts.get("kind") == "agent"]
    processes = [p for p in lab.processes if p.facts.get("kind") != "agent"]
    kinds = Counter(str(p.facts.get("kind")) for p in processes)
    return LabStatus(
        lab=settings.lab,
        processes=[{"name": p.name, "seen_s_ago": round(p.seen_s_ago, 1), **p.facts} for p in processes],
        counts=dict(sorted(kinds.items())),
        agents=sorted((agent_status(p) for p in agents), key=lambda a: (a.tag, a.agent)),
        gpu_pool=gpus,
        queue=lab.queued,
        tags=lab.tags,
        paused_tags=list(lab.paused_tags),
        swarm_workers=lab.swarm_workers,
        events=dict(lab.events),
        hints=list(hints(lab, kinds, settings.stale_s)),
    )


def agent_status(seen: LiveProcess) -> AgentStatus:
    """An agent as it was announced."""
    named = {name: value for name, value in seen.facts.items() if name in AgentStatus.model_fields}
    if (limit := named.pop("limit", None)) is not None:
        named |= {"limit": limit["said"], "until": stamp(limit["until"])}
    return AgentStatus.model_validate({**named, "seen_s_ago": round(seen.seen_s_ago, 1)})


def hints(lab: Overview, kinds: Collection[str], stale_s: float) -> Iterator[str]:
    """Advice for an operator."""
    workers = [gpu for gpu in lab.gpus.gpus if not gpu.of_agent]
    gpus = pool_counts(workers, lab.gpus.now, stale_s)
    if lab.queued and not gpus["idle"] + gpus["training"]:
        waits = "1 experiment waits" if lab.queued == 1 else f"{lab.queued} experiments wait"
        why_not = standstill(workers, lab.gpus.now, stale_s)
        yield waits + (f". {why_not}" if why_not else f" and {ADD_WORKER}")
    for tag in lab.paused_tags[:10]:
        yield f"{tag} is paused: POST /api/tag/unpause runs what waits"
    for kind in ("events", "clock"):
        if kind not in kinds:
            yield as_typed(f"no {kind} process is alive: start the lab with ./nightjar up")
    for name in lab.paused_functions:
        resume = as_typed(f"./nightjar call cron::resume --function {name}")
        yield f"the clock does not fire {name}, it is paused: {resume}"
    yield from event_hints(lab.events)
