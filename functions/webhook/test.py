"""webhook::test sends a webhook one message now."""

from __future__ import annotations

import secrets
from typing import Any

from pydantic import Field

from functions.contract import Command, Response, function
from functions.views.messages import message_id, payload, signed
from state.ids import Id
from state.receivers import Receivers
from state.records import stamp
from state.settings import Settings
from state.webhooks import Webhooks


class TestWebhook(Command):
    id: Id = Field(description="the webhook's: webhook::list shows them", examples=["wh_3f9a1c2b7d5e8a60"])


class TestedWebhook(Response):
    delivered: bool
    status: int | None
    """The receiver's HTTP status; null if there was no answer."""
    error: str | None
    message_id: str


@function("webhook::test", role="operator", writes=True)
async def test(
    request: TestWebhook, webhooks: Webhooks, receivers: Receivers, settings: Settings
) -> TestedWebhook:
    """Send a `webhook.test` message now, once, and show the receiver's answer."""
    webhook, now = await webhooks.get(request.id), await webhooks.now()
    envelope: dict[str, Any] = {
        "id": f"test-{secrets.token_hex(8)}",
        "type": "webhook.test",
        "time": stamp(now),
        "lab": settings.lab,
        "tag": webhook.tag,
        "subject": webhook.id,
        "data": {},
        "trace": None,
    }
    message, body = message_id(envelope["id"], webhook.id), payload(envelope)
    reply = await receivers.send(webhook.url, signed(webhook.secret, message, int(now), body), body)
    return TestedWebhook(
        delivered=not reply.error, status=reply.status, error=reply.error or None, message_id=message
    )
