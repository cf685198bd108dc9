"""search::set_policy changes thresholds of a tag's research."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from functions.contract import Command, Response, function
from functions.plugins import Schedulers
from functions.rules.stopping.ticks import check_source
from functions.rules.swarm.results import check_comparison
from state.ids import Tag as TagName
from state.policies import Policies
from state.policy import Policy
from state.tags import Tags


class SetPolicy(Command):
    tag: TagName
    policy: dict[str, Any] = Field(
        description="the values to change, nested or with dotted names",
        examples=[{"near_miss_margin": 0.003, "traces.mode": "multi"}],
    )
    expected_version: int | None = Field(
        None, ge=1, description="refuse if the policy is at another version", examples=[3]
    )


class Changed(Response):
    tag: str
    version: int
    policy: Policy


@function("search::set_policy", role="operator", writes=True)
async def set_policy(request: SetPolicy, policies: Policies, schedulers: Schedulers, tags: Tags) -> Changed:
    """Change some values; each change is a new version, and decisions remember theirs."""

    async def check(before: Policy, new: Policy) -> None:
        await schedulers.check(new)
        if before.stopping.tick_source != new.stopping.tick_source:
            check_source(new, (await tags.get(request.tag)).direction)
        if before.compare_by != new.compare_by:
            check_comparison(before, new, await tags.get(request.tag))

    changed, version = await policies.change(
        request.tag, request.policy, request.expected_version, check=check
    )
    return Changed(tag=request.tag, version=version, policy=changed)
