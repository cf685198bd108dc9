"""webhook::remove sends a receiver nothing any more."""

from __future__ import annotations

from functions.contract import Command, Response, function
from state.ids import Id
from state.webhooks import Webhooks


class Remove(Command):
    id: Id


class Removed(Response):
    removed: str


@function("webhook::remove", role="operator", writes=True)
async def remove(request: Remove, webhooks: Webhooks) -> Removed:
    """Forget a webhook and what it was still owed; its dead letters stay until they are discarded."""
    await webhooks.remove(request.id)
    return Removed(removed=request.id)
