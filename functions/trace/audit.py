"""trace::audit checks every invariant of a tag's traces and says what is wrong."""

from __future__ import annotations

from functions.contract import Request, Response, function
from functions.rules.audit.forest import forest_violations
from state.ids import Tag as TagName
from state.policies import Policies
from state.snapshots import Snapshots

LOOKS = 5
"""What is only half read of a tag at work looks wrong, and may look so twice."""


class AuditTraces(Request):
    tag: TagName


class AuditedTraces(Response):
    ok: bool
    violations: list[str]
    traces: int
    open_selections: int
    experiments: int


@function("trace::audit", role="operator")
async def audit(request: AuditTraces, policies: Policies, snapshots: Snapshots) -> AuditedTraces:
    """Compare every trace's tip, base, counters and leases with the tag's experiments; lab::audit does it for all.

    Reads the whole tag, while it goes on; what is only seen in passing is looked at again.
    """
    seen = await _look(request.tag, policies, snapshots)
    for _ in range(LOOKS - 1):
        if seen.ok:
            break
        again = await _look(request.tag, policies, snapshots)
        lasting = [v for v in again.violations if v in set(seen.violations)]
        seen = again.model_copy(update={"ok": not lasting, "violations": lasting})
    return seen


async def _look(tag: str, policies: Policies, snapshots: Snapshots) -> AuditedTraces:
    policy, _ = await policies.get(tag)
    found = await snapshots.experiments(tag)
    forest = await snapshots.forest(tag)
    violations = list(forest_violations(policy.traces.mode, forest, found))
    return AuditedTraces(
        ok=not violations,
        violations=violations,
        traces=len(forest.traces),
        open_selections=len(forest.open),
        experiments=len(found),
    )
