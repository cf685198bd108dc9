"""trace::audit checks every invariant of a tag's traces."""

from __future__ import annotations

import asyncio

from functions.contract import Request, Response, function
from functions.rules.audit.forest import forest_violations
from state.ids import Tag as TagName
from state.policies import Policies
from state.snapshots import Snapshots

LOOKS = 5
"""A violation counts only if all these looks find it: the tag may change while it is read."""


class AuditTraces(Request):
    tag: TagName


class AuditedTraces(Response):
    ok: bool
    violations: list[str]
    traces: int
    open_selections: int
    experiments: int


@function("trace::audit", role="operator", costly=True)
async def audit(request: AuditTraces, policies: Policies, snapshots: Snapshots) -> AuditedTraces:
    """Compare each trace's tip, base, counters and leases with the tag's experiments; lab::audit checks all tags.

    Reads the whole tag while it is in use; a violation counts only if every look finds it.
    """
    seen = await _look(request.tag, policies, snapshots)
    for _ in range(LOOKS - 1):
        if seen.ok:
            break
        again = await _look(request.tag, policies, snapshots)
        before = set(seen.violations)
        lasting = [v for v in again.violations if v in before]
        seen = again.model_copy(update={"ok": not lasting, "violations": lasting})
    return seen


async def _look(tag: str, policies: Policies, snapshots: Snapshots) -> AuditedTraces:
    policy, _ = await policies.get(tag)
    found = await snapshots.experiments(tag)
    forest = await snapshots.forest(tag)
    mode = policy.traces.mode
    # In a thread: of a large tag it takes long.
    violations = await asyncio.to_thread(lambda: [*forest_violations(mode, forest, found)])
    return AuditedTraces(
        ok=not violations,
        violations=violations,
        traces=len(forest.traces),
        open_selections=len(forest.open),
        experiments=len(found),
    )
