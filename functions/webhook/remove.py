"""webhook::remove deletes a webhook."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, Response, function
from state.ids import Id
from state.webhooks import Webhooks


class RemoveWebhook(Command):
    id: Id = Field(description="the webhook's: webhook::list shows them", examples=["wh_3f9a1c2b7d5e8a60"])


class RemovedWebhook(Response):
    removed: str


@function("webhook::remove", role="operator", writes=True)
async def remove(request: RemoveWebhook, webhooks: Webhooks) -> RemovedWebhook:
    """Delete a webhook and its undelivered events; its dead letters stay until they are discarded."""
    await webhooks.remove(request.id)
    return RemovedWebhook(removed=request.id)
