"""lab::audit checks every invariant of the lab and says what is wrong."""

from __future__ import annotations

from functions.contract import Command, Response, function
from functions.rules.audit.forest import forest_violations
from functions.rules.audit.lab import PoolSnapshot, Snapshot, pool_violations, tag_violations
from state.experiments import Experiments
from state.policies import Policies
from state.pool import Pool
from state.records import Tag as TagRecord
from state.snapshots import Snapshots
from state.tags import Tags

PAGE = 1000
LOOKS = 5
"""What is only half read of a lab at work looks wrong, and may look so twice."""


class Audit(Command):
    """Nothing to say."""


class Audited(Response):
    ok: bool
    violations: list[str]
    tags: int
    experiments: int
    gpus: int


@function("lab::audit", role="operator", writes=True)
async def audit(
    request: Audit,
    tags: Tags,
    policies: Policies,
    experiments: Experiments,
    pool: Pool,
    snapshots: Snapshots,
) -> Audited:
    """Compare counters, indexes, best, near misses, lineage, traces, leases, queue and stream with the records.

    Reads everything, page by page, while the lab goes on; what is only seen in passing is looked at again.
    """
    seen = await _look(tags, policies, experiments, pool, snapshots)
    lasting = seen.violations
    for _ in range(LOOKS - 1):
        if not lasting:
            break
        seen = await _look(tags, policies, experiments, pool, snapshots)
        lasting = [v for v in seen.violations if v in set(lasting)]
    if lasting:
        await snapshots.report(lasting)
    return seen.model_copy(update={"ok": not lasting, "violations": lasting})


async def _look(
    tags: Tags, policies: Policies, experiments: Experiments, pool: Pool, snapshots: Snapshots
) -> Audited:
    violations: list[str] = []
    everything = await _all_tags(tags)
    count = 0
    finishes = await snapshots.finishes()
    for tag in everything:
        found = await snapshots.experiments(tag.name)
        retests = await snapshots.retests(found)
        count += len(found)
        snapshot = Snapshot(
            tag=await tags.get(tag.name),
            experiments=found,
            retests=retests,
            by_status=await snapshots.status_indexes(tag.name),
            finish_order=await snapshots.finish_order(tag.name),
            categories=await tags.categories(tag.name),
            near_misses=await snapshots.near_misses(tag.name),
            best=await experiments.best(tag.name),
            finished_events=finishes.get(tag.name, {}) if finishes is not None else None,
            books=await snapshots.books([*found, *retests]),
        )
        violations += tag_violations(snapshot)
        policy, _ = await policies.get(tag.name)
        violations += forest_violations(policy.traces.mode, await snapshots.forest(tag.name), found)
    gpus = await pool.all()
    violations += pool_violations(
        PoolSnapshot(
            gpus=gpus,
            idle=await snapshots.members("idle_gpus"),
            leases=await snapshots.members("leases"),
            queue=await snapshots.waiting(),
            starting=await snapshots.members("starting"),
            open=await snapshots.members("open"),
            parked=await snapshots.parked(),
            paused=await snapshots.members("paused"),
            paused_tags=frozenset(t.name for t in everything if t.paused_at is not None),
            experiments=await snapshots.open_experiments(
                [t.name for t in everything], [g.holder for g in gpus if g.holder is not None]
            ),
        )
    )
    return Audited(
        ok=not violations, violations=violations, tags=len(everything), experiments=count, gpus=len(gpus)
    )


async def _all_tags(tags: Tags) -> list[TagRecord]:
    found: list[TagRecord] = []
    while page := await tags.newest(len(found), PAGE):
        found += page
    return found
