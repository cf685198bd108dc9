"""search::policy shows every threshold of a tag's research."""

from __future__ import annotations

from functions.contract import Request, Response, function
from state.ids import Tag as TagName
from state.policies import Policies
from state.policy import Policy


class Ask(Request):
    tag: TagName


class Shown(Response):
    tag: str
    version: int
    policy: Policy


@function("search::policy", role="viewer")
async def policy(request: Ask, policies: Policies) -> Shown:
    """A tag's research policy with its version."""
    found, version = await policies.get(request.tag)
    return Shown(tag=request.tag, version=version, policy=found)
