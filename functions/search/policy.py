"""search::policy shows every threshold of a tag's research."""

from __future__ import annotations

from functions.contract import Request, Response, function
from state.ids import Tag as TagName
from state.policies import Policies
from state.policy import Policy


class ReadPolicy(Request):
    tag: TagName


class CurrentPolicy(Response):
    tag: str
    version: int
    policy: Policy


@function("search::policy", role="viewer")
async def policy(request: ReadPolicy, policies: Policies) -> CurrentPolicy:
    """A tag's research policy with its version."""
    found, version = await policies.get(request.tag)
    return CurrentPolicy(tag=request.tag, version=version, policy=found)
