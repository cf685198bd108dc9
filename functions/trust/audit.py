"""lab::audit checks every counter, index, lease and event against the records."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ParamSpec

from functions.fold import noise
from functions.kernel.contract import Command, Response, function
from functions.trust.rules.audit_lab import (
    PoolSnapshot,
    TagSnapshot,
    door_violations,
    pool_violations,
    tag_violations,
)
from functions.trust.rules.audit_tags import SwarmSnapshot, forest_violations, swarm_violations
from state.derived import rebuild
from state.dimensions import Dimensions
from state.experiments import Experiments
from state.pool import Pool
from state.records import Tag as TagRecord
from state.snapshots import Snapshots
from state.tags import Policies, Tags


@dataclass(frozen=True)
class AuditStores:
    tags: Tags
    policies: Policies
    experiments: Experiments
    pool: Pool
    snapshots: Snapshots
    dimensions: Dimensions


P = ParamSpec("P")

PAGE = 1000
LOOKS = 5
"""A violation counts only if all these looks find it: the lab may change while it is read."""


class AuditedLab(Response):
    ok: bool
    violations: list[str]
    tags: int
    experiments: int
    gpus: int


@function("lab::audit", role="operator", writes=True, costly=True)
async def audit(request: Command, stores: AuditStores) -> AuditedLab:
    """Compare counters, indexes, best, noise, lineage, traces, leases, queue and stream with the records.

    Reads everything, page by page, while the lab is in use; a violation counts only if every look finds it.
    """
    seen = await _look(stores)
    lasting = seen.violations
    for _ in range(LOOKS - 1):
        if not lasting:
            break
        seen = await _look(stores)
        before = set(lasting)
        lasting = [v for v in seen.violations if v in before]
    if lasting:
        await stores.snapshots.report(lasting)
    return seen.model_copy(update={"ok": not lasting, "violations": lasting})


async def _look(stores: AuditStores) -> AuditedLab:
    violations: list[str] = []
    count = 0
    tags = await _all_tags(stores)
    finishes = await stores.snapshots.finishes()
    for tag in tags:
        events = None if finishes is None else finishes.get(tag.name, Counter())
        snapshot = await _snapshot(tag.name, events, stores)
        count += len(snapshot.experiments)
        policy, _ = await stores.policies.get(tag.name)
        forest = await stores.snapshots.forest(tag.name)
        mode = policy.traces.mode
        violations += await _found(tag_violations, snapshot)
        violations += await _found(forest_violations, mode, forest, snapshot.experiments)
        violations += await _found(swarm_violations, await _swarm(snapshot, stores))
    violations += door_violations(await stores.snapshots.operators(), await stores.snapshots.closed_at())
    pool = await _pool_snapshot(tags, stores)
    violations += await _found(pool_violations, pool)
    return AuditedLab(
        ok=not violations, violations=violations, tags=len(tags), experiments=count, gpus=len(pool.gpus)
    )


async def _found(check: Callable[P, Iterable[str]], *facts: P.args, **more: P.kwargs) -> list[str]:
    """The findings of a check, in a thread: a large tag takes long."""
    return await asyncio.to_thread(lambda: [*check(*facts, **more)])


async def _snapshot(name: str, finished_events: Mapping[str, int] | None, stores: AuditStores) -> TagSnapshot:
    snapshots = stores.snapshots
    found, tag = await snapshots.experiments(name), await stores.tags.get(name)
    retests = await snapshots.retests(found)
    rebuilt = await asyncio.to_thread(rebuild, [*found, *retests], tag.direction)
    measured = await asyncio.to_thread(noise, [*found, *retests])
    ranks, ends, told = await snapshots.ranked(name)
    return TagSnapshot(
        tag=tag,
        experiments=found,
        retests=retests,
        rebuilt=rebuilt,
        stored=await snapshots.derived(name, rebuilt),
        measured=measured,
        noise=await snapshots.hashes(measured),
        best=await stores.experiments.best(name),
        finished_events=finished_events,
        lost_patches=await snapshots.lost_patches([*found, *retests]),
        books=await snapshots.books([*found, *retests]),
        ranks=ranks,
        ends=ends,
        told=told,
        dimensions=(await stores.dimensions.facts(name)).dimensions,
    )


async def _swarm(s: TagSnapshot, stores: AuditStores) -> SwarmSnapshot:
    snapshots, tag = stores.snapshots, s.tag.name
    workers = await snapshots.swarm_workers(tag)
    return SwarmSnapshot(
        tag=tag,
        rebuilt=s.rebuilt,
        runs=[*s.experiments, *s.retests],
        workers=workers,
        handed_out=await snapshots.members("handed_out"),
        leaders=await snapshots.leaders(tag),
    )


async def _pool_snapshot(tags: Sequence[TagRecord], stores: AuditStores) -> PoolSnapshot:
    snapshots, gpus = stores.snapshots, (await stores.pool.roster())[1]
    return PoolSnapshot(
        gpus=gpus,
        owned=await snapshots.owned_gpus(),
        idle=await snapshots.members("idle_gpus"),
        leases=await snapshots.members("leases"),
        queue=await snapshots.waiting(),
        starting=await snapshots.members("starting"),
        open=await snapshots.members("open"),
        parked=await snapshots.parked(),
        paused=await snapshots.members("paused"),
        paused_tags=frozenset(t.name for t in tags if t.paused_at is not None),
        baselines={t.name: t.baseline_id for t in tags if t.awaits_baseline and t.baseline_id is not None},
        experiments=await snapshots.open_experiments(
            [t.name for t in tags], [g.holder for g in gpus if g.holder is not None]
        ),
    )


async def _all_tags(stores: AuditStores) -> list[TagRecord]:
    found: list[TagRecord] = []
    while page := await stores.tags.newest(len(found), PAGE):
        found += page
    return found
