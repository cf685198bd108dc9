"""Webhooks: their messages (event, a sentence for people, and the signature of Standard Webhooks) and functions."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from functions.formats.digits import figure
from functions.kernel.contract import Command, Request, Response, function
from state.events import SENTENCES, EventType
from state.ids import Id
from state.ids import Tag as TagName
from state.records import stamp, stamped, view_of
from state.settings import Settings
from state.webhooks import Receivers, Webhooks, new_secret, shown

# -- Messages: the event, one sentence for people, and the signature (Standard Webhooks).

SECRET_PREFIX = "whsec_"
LONGEST = 1500
"""Characters of a sentence; Discord takes 2,000."""
INVISIBLE = "\u200b"

VALUES = ("val_bpb", "judged_val_bpb", "reported", "late_val_bpb")
"""Values of a tag's metric in an event's data."""


def sentence(envelope: Mapping[str, Any], sigma: float | None = None) -> str:
    """One sentence on an event of a tag with this noise. Texts of agents in it cannot mention, link or format."""
    facts = {**envelope["data"], "tag": envelope["tag"], "subject": envelope["subject"]}
    if "status" in facts:
        facts["outcome"] = ", ".join(str(facts[name]) for name in ("status", "trust") if facts.get(name))
    for name in VALUES:
        if isinstance(facts.get(name), float):
            facts[name] = figure(facts[name], sigma)
    plain = defaultdict[str, str](lambda: "unknown", {name: harmless(v) for name, v in facts.items()})
    pattern = SENTENCES.get(envelope["type"])
    text = pattern.format_map(plain) if pattern else f"{harmless(envelope['type'])}: {plain['subject']}"
    return f"[{harmless(envelope['lab'])}] {text}"[:LONGEST]


def harmless(value: object) -> str:
    """A value as text in which Slack and Discord see no mention, no link and no markup."""
    text = "unknown" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    text = " ".join(text[:300].split())
    for sign in "@:*`~|[]":
        text = text.replace(sign, sign + INVISIBLE)
    return text.replace("<", "‹").replace(">", "›").replace("&", "＆")


def payload(envelope: Mapping[str, Any], sigma: float | None = None) -> bytes:
    """The body: `type`, `timestamp` and `data` as the standard asks, the rest of the envelope, and the sentence.

    Slack shows `text`, Discord `content`, each as it is; `allowed_mentions` keeps Discord from notifying anyone.
    """
    said = sentence(envelope, sigma)
    rest = {name: envelope[name] for name in ("id", "lab", "tag", "subject", "trace")}
    body = {
        "type": envelope["type"],
        "timestamp": envelope["time"],
        "data": envelope["data"],
        **rest,
        "text": said,
        "content": said,
        "allowed_mentions": {"parse": []},
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def message_id(event_id: str, webhook_id: str) -> str:
    """The same for every delivery of one event to one receiver."""
    return f"msg_{webhook_id}_{event_id}"


def signed(secret: str, message: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of one delivery attempt, at `timestamp` in seconds since 1970."""
    content = f"{message}.{timestamp}.".encode() + body
    digest = hmac.new(key_of(secret), content, hashlib.sha256).digest()
    return {
        "content-type": "application/json",
        "user-agent": "Nightjar",
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }


def key_of(secret: str) -> bytes:
    """The key within `whsec_<base64>`. Raises ValueError: not that form, or not 24 to 64 bytes."""
    if not secret.startswith(SECRET_PREFIX):
        raise ValueError("a secret begins with whsec_")
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("a secret is whsec_ and base64") from None
    if not 24 <= len(key) <= 64:
        raise ValueError("a secret has 24 to 64 bytes")
    return key


# -- Functions: webhooks are added, listed, tested and removed.


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
