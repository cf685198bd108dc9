"""Webhooks: receivers of the lab's events over HTTP, with counts of their deliveries.

Redis holds two secrets in plain text: the signing key, since every delivery is signed with it, and the URL, which is
a secret of some receivers. Neither appears in events, logs or answers, except the answer of `webhook::add`.
"""

from __future__ import annotations

import base64
import json
import secrets

from pydantic import Field

from state.change import NOW, Change, exists, hmget, size, zscore
from state.errors import Conflict, NotFound
from state.facts import Spread
from state.reads import Store, main_noise
from state.records import Record
from state.stream import Stream, Subscription

MOST = 100
"""Most webhooks of a lab: each has its own consumer group."""


class Webhook(Record):
    """A receiver of events."""

    id: str
    url: str = Field(repr=False)
    secret: str = Field(repr=False)
    """`whsec_<base64>`."""
    types: tuple[str, ...] | None = None
    """None: every type."""
    tag: str | None = None
    description: str = ""
    created_at: float
    disabled_at: float | None = None
    disabled_reason: str | None = None

    @property
    def binding(self) -> str:
        """Its consumer group; dead letters name it."""
        return _group(self.id)


class Deliveries(Record):
    """Delivery attempts to one receiver."""

    delivered: int = 0
    failed: int = 0
    """Number of attempts, not of events."""
    last_at: float | None = None
    last_status: int | None = None
    last_error: str | None = None


def new_secret() -> str:
    """A random signing secret of 32 bytes."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


class Webhooks(Store):
    """All webhooks of the lab."""

    async def add(
        self, *, url: str, secret: str, types: tuple[str, ...] | None, tag: str | None, description: str
    ) -> str:
        """Register a receiver, for events from now on; answers its id. Raises Conflict: there are MOST."""
        webhook_id = f"wh_{secrets.token_hex(8)}"
        keys, group = self._lab.keys, _group(webhook_id)
        told = {"webhook_id": webhook_id, "types": types, "tag": tag, "description": description}

        async def decide(change: Change) -> None:
            (count,) = await change.read(size(keys("webhooks")))
            if count >= MOST:
                raise Conflict(
                    f"there are {MOST} webhooks, the most that a lab may have",
                    hint="POST /api/webhook/remove some",
                )
            change.hset(
                keys("webhooks", webhook_id),
                {
                    "url": url,
                    "secret": secret,
                    "types": json.dumps(types),
                    "tag": tag or "",
                    "description": description,
                    "created_at": NOW,
                },
            )
            change.zadd(keys("webhooks"), {webhook_id: NOW})
            change.xgroup_create(keys("events"), group, "$")
            change.xgroup_create(keys("redriven", group), group, "0")
            change.zadd(keys("bindings"), dict.fromkeys(_bindings(group), NOW))
            change.emit("webhook.added", None, webhook_id, told)

        await self._lab.change(decide)
        return webhook_id

    async def get(self, webhook_id: str) -> Webhook:
        """One webhook. Raises NotFound: there is none with this id."""
        stored = await self._lab.hash(self._lab.keys("webhooks", webhook_id))
        if not stored:
            raise NotFound(f"there is no webhook {webhook_id!r}", hint="POST /api/webhook/list names them")
        return Webhook.parse({**stored, "id": webhook_id})

    async def all(self) -> list[Webhook]:
        """Every webhook, oldest first."""
        return [webhook for webhook, _ in await self.with_deliveries()]

    async def with_deliveries(self) -> list[tuple[Webhook, Deliveries]]:
        """Every webhook with the counts of its deliveries, oldest first."""
        keys = self._lab.keys
        ids: list[str] = await self._lab.command("ZRANGE", keys("webhooks"), 0, -1)
        stored = await self._lab.hashes([keys(part, i) for i in ids for part in ("webhooks", "deliveries")])
        return [
            (Webhook.parse({**one, "id": i}), Deliveries.parse(went))
            for i, one, went in zip(ids, stored[::2], stored[1::2], strict=True)
            if one
        ]

    async def spread(self, tag: str) -> Spread:
        """The noise of a tag's main class of GPU; it says how many digits a value has in a message."""
        return await self._lab.one(main_noise(self._lab, tag))

    async def remove(self, webhook_id: str) -> None:
        """Delete a receiver and its consumer group. Raises NotFound: there is none with this id."""
        keys = self._lab.keys

        async def decide(change: Change) -> bool:
            added_at, has_events = await change.read(
                zscore(keys("webhooks"), webhook_id), exists(keys("events"))
            )
            if added_at is None:
                return False
            self._end(change, webhook_id, has_events)
            change.zrem(keys("webhooks"), webhook_id)
            change.delete(keys("webhooks", webhook_id), keys("deliveries", webhook_id))
            change.emit("webhook.removed", None, webhook_id, {"webhook_id": webhook_id})
            return True

        if not await self._lab.change(decide):
            raise NotFound(f"there is no webhook {webhook_id!r}", hint="POST /api/webhook/list names them")

    async def disable(self, webhook_id: str, reason: str) -> bool:
        """Stop sending to it; operators still see it. False if it was disabled or removed before."""
        keys = self._lab.keys

        async def decide(change: Change) -> bool:
            webhook, has_events = await change.read(
                hmget(keys("webhooks", webhook_id), "created_at", "disabled_at"), exists(keys("events"))
            )
            if webhook["created_at"] is None or webhook["disabled_at"] is not None:
                return False
            self._end(change, webhook_id, has_events)
            change.hset(keys("webhooks", webhook_id), {"disabled_at": NOW, "disabled_reason": reason})
            told = {"webhook_id": webhook_id, "reason": reason}
            change.emit("webhook.disabled", None, webhook_id, told)
            return True

        return await self._lab.change(decide)

    async def note(self, webhook_id: str, status: int | None, error: str) -> None:
        """Count a delivery attempt; `error` is empty if it succeeded."""
        keys = self._lab.keys

        async def decide(change: Change) -> None:
            (added_at,) = await change.read(zscore(keys("webhooks"), webhook_id))
            if added_at is None:
                return
            deliveries = keys("deliveries", webhook_id)
            change.hincrby(deliveries, "failed" if error else "delivered")
            change.hset(deliveries, {"last_at": NOW, "last_status": status or "", "last_error": error[:500]})

        await self._lab.change(decide)

    def subscriptions(self, webhook: Webhook, consumer: str, stream: Stream) -> list[Subscription]:
        """Its subscriptions to the lab's events and to its redriven dead letters."""
        return [
            stream.events(webhook.binding, consumer, made=True),
            stream.redriven(webhook.binding, consumer, made=True),
        ]

    def _end(self, change: Change, webhook_id: str, has_events: bool) -> None:
        """Drop its consumer group and what waits for it alone."""
        keys, group = self._lab.keys, _group(webhook_id)
        change.zrem(keys("bindings"), *_bindings(group))
        if has_events:
            change.xgroup_destroy(keys("events"), group)
        change.delete(keys("redriven", group))


def _group(webhook_id: str) -> str:
    return f"webhook:{webhook_id}"


def _bindings(group: str) -> tuple[str, str]:
    """Its bindings to events and to redriven dead letters."""
    return f"events {group}", f"redriven:{group} {group}"
