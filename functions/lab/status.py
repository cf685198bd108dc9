"""The lab: its status, its archive of patches, its functions, and the agents under `nightjar agent`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from functions.experiments.views.hints import ADD_WORKER, event_hints, standstill
from functions.kernel.contract import Call, Command, Every, Http, Request, Response, function
from functions.kernel.schemas import prepare, schema_of
from functions.kernel.table import table
from functions.pool.rules.health import pool_counts
from state.archive import PatchArchiving
from state.errors import Conflict
from state.ids import AgentName
from state.ids import Tag as TagName
from state.presence import FORGOTTEN_S, LiveProcess, Overview, Overviews, Presence, Tallies
from state.program import as_typed
from state.records import AgentLimit, EndedRun, UsedPatches, stamp, view_of
from state.settings import Settings
from state.tags import Policies, Tags

log = logging.getLogger(__name__)


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
async def status(request: Request, overviews: Overviews, settings: Settings) -> LabStatus:
    """The lab's living processes, GPUs, queue, paused tags and event lags, with hints."""
    timed = [name for name, declared in table().items() if declared.clock is not None]
    lab = await overviews.read(timed, alive_s=settings.stale_s)
    gpus = pool_counts(lab.gpus, lab.now, settings.stale_s)
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
    named = {name: value for name, value in seen.facts.items() if name in AgentStatus.model_fields}
    if (limit := named.pop("limit", None)) is not None:
        named |= {"limit": limit["said"], "until": stamp(limit["until"])}
    return AgentStatus.model_validate({**named, "seen_s_ago": round(seen.seen_s_ago, 1)})


def hints(lab: Overview, kinds: Collection[str], stale_s: float) -> Iterator[str]:
    workers = [gpu for gpu in lab.gpus if not gpu.of_agent]
    gpus = pool_counts(workers, lab.now, stale_s)
    if lab.queued and not gpus["idle"] + gpus["training"]:
        waits = "1 experiment waits" if lab.queued == 1 else f"{lab.queued} experiments wait"
        why_not = standstill(workers, lab.now, stale_s)
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


DAY_S = 86400.0
ARCHIVE_S = 3600
AT_ONCE = 25
MOST = 1000
"""Patches that one firing moves."""
TRIES = 10
"""Tries to remove a batch while its patches are used."""


class ArchivedPatches(Response):
    moved: int
    more: bool
    """Others are left for the next firing."""
    without_archive: list[str]
    """Tags whose policy asks for it while the lab has no archive."""


@function("lab::archive", Every(ARCHIVE_S), role="operator", writes=True, costly=True)
async def archive(
    request: Command, patches: PatchArchiving, policies: Policies, tags: Tags
) -> ArchivedPatches:
    """Move patches of runs that were not kept to NIGHTJAR_ARCHIVE, as old as patches.archive_after_days says.

    Each is read again there before it is removed from Redis. Later requests read it from the archive.
    The patches of open and of kept runs stay.
    """
    names = await tags.names()
    moved, without_archive = 0, list[str]()
    for tag in names:
        policy, _ = await policies.get(tag)
        if (days := policy.patches.archive_after_days) is None:
            continue
        if not patches.can_leave:
            log.warning("%s is to archive its patches, and NIGHTJAR_ARCHIVE names no place", tag)
            without_archive.append(tag)
            continue
        before = await patches.now() - days * DAY_S
        async for page in patches.ended(tag):
            waiting = leaving(page, await patches.used(tag, names), before)
            while waiting:
                if moved >= MOST:
                    return ArchivedPatches(moved=moved, more=True, without_archive=without_archive)
                batch, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
                moved += await _removed(tag, names, await patches.copy(batch), patches)
    return ArchivedPatches(moved=moved, more=False, without_archive=without_archive)


async def _removed(tag: str, names: list[str], batch: list[str], patches: PatchArchiving) -> int:
    """Remove those of these patches that nothing uses by now; answers how many."""
    for _ in range(TRIES):
        used = await patches.used(tag, names)
        unused = [digest for digest in batch if digest not in used.digests]
        if await patches.remove(tag, unused, used.uses):
            return len(unused)
    return 0


def leaving(page: Iterable[EndedRun], used: UsedPatches, before: float) -> list[str]:
    """The patches of runs that ended before this time, but those that something still uses."""
    old = {digest for ended in page if ended.finished_at < before for digest in ended.digests}
    return sorted(old - used.digests)


# -- The functions: their table, and how often each was called.


class FunctionView(Response):
    name: str
    description: str
    triggers: list[str]
    role: list[str]
    lane: str
    writes: bool
    costly: bool
    """Whether a caller may have only a few calls of such functions under way at once."""
    request: dict[str, Any]
    response: dict[str, Any]


class ListedFunctions(Response):
    functions: list[FunctionView]
    total: int


@function(
    "function::list", Http("GET", "/api/function/list"), Http("POST", "/api/function/list"), role="viewer"
)
async def list_functions(request: Request) -> ListedFunctions:
    """Every function with its triggers, role, lane and schemas."""
    await prepare(table())
    rows = _rows()
    return ListedFunctions(functions=[*rows], total=len(rows))


@cache
def _rows() -> tuple[FunctionView, ...]:
    return tuple(
        view_of(
            FunctionView,
            declared,
            name=name,
            description=declared.description,
            triggers=[str(trigger) for trigger in declared.triggers],
            role=[*declared.roles],
            request=dict(schema_of(declared.request, "request")),
            response=dict(schema_of(declared.response, "answer")),
        )
        for name, declared in table().items()
    )


class FunctionCalls(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True, from_attributes=True)

    calls: int
    errors: int
    """Calls that were refused or failed."""
    last_at: float | None
    """When the last one ended, in seconds since 1970; null where it is not known. Calls of other kinds of processes
    are told some seconds late."""


class CountedCalls(Response):
    functions: dict[str, FunctionCalls]
    """By name; only functions that were called. Counts are of the answering web process since it started, and of
    other kinds of processes since the lab was made."""


@function("function::calls", role="viewer")
async def calls(request: Request, call: Call, tallies: Tallies) -> CountedCalls:
    """Calls, refusals and failures of each function; cron::list has the next firings."""
    counted = call.invoker.counts(await tallies.all())
    return CountedCalls(
        functions={name: FunctionCalls.model_validate(each) for name, each in counted.items()}
    )


# -- The state of an agent under `nightjar agent`.

MOST_AGENTS = 256
"""Most agents that are shown at once."""

Second = Annotated[int, Field(ge=0, le=10**11)]
Count = Annotated[int, Field(ge=0, le=10**15)]


class MetLimit(Request):
    """A usage limit that an agent has met."""

    since: Second = Field(description="when it met the limit, in seconds since 1970", examples=[1795755600])
    until: Second = Field(description="when it is started again", examples=[1795759200])
    said: Annotated[str, Field(max_length=300)] = Field(
        description="the line that it printed", examples=["usage limit reached, resets 3am"]
    )


class Announce(Request):
    tag: TagName
    agent: AgentName
    state: Literal["starting", "working", "waiting", "limited", "ended"] = Field(
        description="waiting: until it is started again; limited: the same, after a usage limit",
        examples=["working"],
    )
    limit: MetLimit | None = Field(
        None,
        description="the limit that a limited agent has met",
        examples=[{"since": 1795755600, "until": 1795759200, "said": "usage limit reached, resets 3am"}],
    )
    starts: Count = Field(0, description="how often its process was started", examples=[1])
    experiments: Count = Field(0, description="experiments of its own that were seen", examples=[7])
    tokens: Count | None = Field(
        None, description="that it has used, where its tool prints them", examples=[120000]
    )
    cost_usd: Annotated[float, Field(ge=0, le=1e9)] | None = Field(
        None, description="what they have cost, where its tool prints that", examples=[1.25]
    )


class Announced(Response):
    tag: str
    agent: str
    state: str


@function("agent::announce", role="agent", writes=True, keeps_answer=False)
async def announce(request: Announce, call: Call, presence: Presence) -> Announced:
    """Show an agent in lab::status for a minute, or take it out; a new usage limit is an event. Decides nothing."""
    name = f"agent@{call.caller.owner or ''}/{request.tag}/{request.agent}"
    answer = Announced(tag=request.tag, agent=request.agent, state=request.state)
    if request.state == "ended":
        await presence.leave(name)
        return answer
    others = [p for p in await presence.alive(FORGOTTEN_S) if p.facts.get("kind") == "agent"]
    if len(others) >= MOST_AGENTS and name not in {p.name for p in others}:
        raise Conflict(
            f"{len(others)} agents are announced already",
            hint="it may work unannounced; those that are silent for an hour are forgotten",
        )
    if request.limit is not None:
        await presence.limit(request.tag, AgentLimit(agent=request.agent, **vars(request.limit)))
    await presence.announce(name, {"kind": "agent", **request.model_dump()})
    return answer
