"""webhook::add sends the lab's events to a URL."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from functions.contract import Command, Response, function
from functions.views.messages import key_of
from state.events import EventType
from state.ids import Tag as TagName
from state.receivers import Receivers
from state.webhooks import Webhooks, new_secret


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
