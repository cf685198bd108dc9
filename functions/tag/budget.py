"""tag::budget limits what a tag may spend."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Command, Response, function
from functions.views.budgets import Account, budget_view
from state.ids import Tag as TagName
from state.tags import RESOURCES, Limit, Resource, Tags

MOST = 10**12
"""Far above any lab, and far below where milliseconds would lose bits."""


class SetBudget(Command):
    tag: TagName
    gpu_seconds: Annotated[float, Field(ge=0, le=MOST)] | None = Field(
        None, description="most GPU seconds, null for no limit; absent leaves it", examples=[86400]
    )
    runs: Annotated[int, Field(ge=0, le=MOST)] | None = Field(
        None, description="most runs, null for no limit; absent leaves it", examples=[200]
    )
    patch_bytes: Annotated[int, Field(ge=0, le=MOST)] | None = Field(
        None,
        description="most bytes that its patches may take in the lab's store, compressed and each content once, null"
        " for no limit; absent leaves it",
        examples=[1_000_000_000],
    )


class Budgeted(Response):
    tag: str
    changed: bool
    gpu_seconds: Account
    runs: Account
    patch_bytes: Account


@function("tag::budget", role="operator", writes=True)
async def budget(request: SetBudget, tags: Tags) -> Budgeted:
    """Limit a tag's GPU seconds and runs, each reserved before a run is queued, and bytes of patches; shows them."""
    changed = await tags.set_budget(
        request.tag, {resource: _limit(request, resource) for resource in RESOURCES}
    )
    view = budget_view(await tags.get(request.tag))
    return Budgeted(tag=request.tag, changed=changed, **dict(view))


def _limit(request: SetBudget, name: Resource) -> Limit:
    """The requested limit. An absent field leaves it; null removes it."""
    if name not in request.model_fields_set:
        return "same"
    given: float | None = getattr(request, name)
    return "none" if given is None else given
