"""Webhooks: added, listed, tested, removed."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from functions.kernel.contract import Command, Request, Response, function
from functions.people.views.messages import key_of, message_id, payload, signed
from state.events import EventType
from state.ids import Id
from state.ids import Tag as TagName
from state.records import stamp, stamped, view_of
from state.settings import Settings
from state.webhooks import Receivers, Webhooks, new_secret, shown


def _checked(secret: str) -> str:
    key_of(secret)
    return secret


class AddWebhook(Command):
    url: str = Field(
        min_length=1,
        max_length=2000,
        description="https://..., without a user name",
        examples=["https://example.org/hook"],
    )
    types: list[EventType] | None = Field(
        None, min_length=1, max_length=100, description="default: every type", examples=[["best.changed"]]
    )
    tag: TagName | None = Field(None, description="only events of this tag")
    description: str = Field("", max_length=200, description="what it is for", examples=["the group's chat"])
    secret: Annotated[str, AfterValidator(_checked)] | None = Field(
        None,
        max_length=200,
        description="whsec_ and base64 of 24 to 64 bytes; default: a random one",
        examples=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )


class AddedWebhook(Response):
    id: str
    secret: str
    """Checks the signatures; it is not shown again."""


@function("webhook::add", role="operator", writes=True)
async def add(request: AddWebhook, webhooks: Webhooks, receivers: Receivers) -> AddedWebhook:
    """Send every event from now on to a URL, signed by Standard Webhooks; the secret is shown only once.

    Redis holds the secret and the URL, and this answer for 24 hours if the request has an Idempotency-Key. To rotate
    a secret: add the URL again, let the receiver accept both, remove the old webhook.
    """
    await receivers.check(request.url)
    secret = request.secret or new_secret()
    webhook_id = await webhooks.add(
        url=request.url,
        secret=secret,
        types=tuple(request.types) if request.types else None,
        tag=request.tag,
        description=request.description,
    )
    return AddedWebhook(id=webhook_id, secret=secret)


class WebhookView(Response):
    id: str
    url: str
    """Without its path, which may hold a receiver's secret."""
    description: str
    types: list[str] | None
    tag: str | None
    created_at: str
    status: Literal["active", "disabled"]
    disabled_reason: str | None
    delivered: int
    failed: int
    """Number of failed attempts, including those that were repeated."""
    last_at: str | None
    last_status: int | None
    last_error: str | None


class ListedWebhooks(Response):
    webhooks: list[WebhookView]


@function("webhook::list", role="operator")
async def list_webhooks(request: Request, webhooks: Webhooks) -> ListedWebhooks:
    """Every webhook with counts of its deliveries, without its secret and the path of its URL."""
    return ListedWebhooks(
        webhooks=[
            view_of(
                WebhookView,
                w,
                **vars(d) | {"last_at": stamped(d.last_at)},
                url=shown(w.url),
                created_at=stamp(w.created_at),
                status="active" if w.disabled_at is None else "disabled",
            )
            for w, d in await webhooks.with_deliveries()
        ]
    )


class WebhookCommand(Command):
    id: Id = Field(description="the webhook's: webhook::list shows them", examples=["wh_3f9a1c2b7d5e8a60"])


class TestedWebhook(Response):
    delivered: bool
    status: int | None
    """The receiver's HTTP status; null if there was no answer."""
    error: str | None
    message_id: str


@function("webhook::test", role="operator", writes=True)
async def test(
    request: WebhookCommand, webhooks: Webhooks, receivers: Receivers, settings: Settings
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


class RemovedWebhook(Response):
    removed: str


@function("webhook::remove", role="operator", writes=True)
async def remove(request: WebhookCommand, webhooks: Webhooks) -> RemovedWebhook:
    """Delete a webhook and its undelivered events; its dead letters stay until they are discarded."""
    await webhooks.remove(request.id)
    return RemovedWebhook(removed=request.id)
