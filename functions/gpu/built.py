"""gpu::built stores which code an attempt trains."""

from __future__ import annotations

import base64
from typing import Annotated

from pydantic import Field

from functions.contract import MIB, Call, Response, function
from functions.gpu._lease import OfLease, lease_of
from functions.gpu._stores import Stores
from functions.lanes import Order, Source
from state.errors import Invalid
from state.settings import Settings

BODY_LIMIT = 6 * MIB


class RunBuilt(OfLease):
    tree_id: Annotated[str, Field(min_length=1, max_length=64)] = Field(
        description="of the files that are trained: the same for the same files",
        examples=["4b825dc642cb6eb9"],
    )
    patch_base64: Annotated[str, Field(max_length=6 * MIB)] | None = Field(
        None,
        description="the patch against the tag's base commit, where none was sent or one that makes other files",
        examples=["ZGlmZiAtLWdpdCBhL3RyYWluLnB5"],
    )
    differs: bool = Field(False, description="the patch that was sent makes other files than the commit")


class RunKnown(Response):
    order: Order
    """continue, or lost: the lease is another's."""


@function("gpu::built", role="worker", writes=True, keeps_answer=False, body_limit=BODY_LIMIT)
async def built(request: RunBuilt, call: Call, stores: Stores, settings: Settings) -> RunKnown:
    """Store what code an attempt trains, before it trains."""
    lease, _ = await lease_of(request, call, stores, settings.stale_s)
    try:
        patch = (
            None if request.patch_base64 is None else base64.b64decode(request.patch_base64, validate=True)
        )
    except ValueError as problem:  # also of characters that are not ASCII
        raise Invalid(f"patch_base64 is no base64: {problem}", hint="send RFC 4648 base64") from problem
    return RunKnown(order=await lease.built(Source(request.tree_id, patch, request.differs)))
