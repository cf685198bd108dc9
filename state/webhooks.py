"""Webhooks: receivers of the lab's events over HTTP, with counts of their deliveries.

Redis holds two secrets in plain text: the signing key, since every delivery is signed with it, and the URL, which is
a secret of some receivers. Neither appears in events, logs or answers, except the answer of `webhook::add`.
"""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from state.client import Lab
from state.errors import Conflict, NotFound
from state.moves import Arg
from state.stream import Stream, Subscription

MOST = 100
"""Most webhooks of a lab: each has its own consumer group."""


@dataclass(frozen=True)
class Webhook:
    """A receiver of events."""

    id: str
    url: str = field(repr=False)
    secret: str = field(repr=False)
    """`whsec_<base64>`."""
    types: tuple[str, ...] | None
    """None: every type."""
    tag: str | None
    description: str
    created_at: float
    disabled_at: float | None = None
    disabled_reason: str | None = None

    @property
    def binding(self) -> str:
        """Its consumer group; dead letters name it."""
        return f"webhook:{self.id}"

    @classmethod
    def parse(cls, webhook_id: str, stored: dict[str, str]) -> Webhook:
        """Read it from the webhook's hash."""
        disabled_at = stored.get("disabled_at")
        types = json.loads(stored["types"])
        return cls(
            id=webhook_id,
            url=stored["url"],
            secret=stored["secret"],
            types=tuple(types) if types is not None else None,
            tag=stored["tag"] or None,
            description=stored["description"],
            created_at=float(stored["created_at"]),
            disabled_at=float(disabled_at) if disabled_at else None,
            disabled_reason=stored.get("disabled_reason"),
        )


@dataclass(frozen=True)
class Deliveries:
    """Delivery attempts to one receiver."""

    delivered: int = 0
    failed: int = 0
    """Number of attempts, not of events."""
    last_at: float | None = None
    last_status: int | None = None
    last_error: str | None = None

    @classmethod
    def parse(cls, stored: dict[str, str]) -> Deliveries:
        """Read it from the hash of `note_delivery.lua`."""
        return cls(
            delivered=int(stored.get("delivered", 0)),
            failed=int(stored.get("failed", 0)),
            last_at=float(stored["last_at"]) if "last_at" in stored else None,
            last_status=int(stored["last_status"]) if stored.get("last_status") else None,
            last_error=stored.get("last_error") or None,
        )


def new_secret() -> str:
    """A random signing secret of 32 bytes."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


class Webhooks:
    """All webhooks of the lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._stream = Stream(lab)

    async def add(
        self, *, url: str, secret: str, types: tuple[str, ...] | None, tag: str | None, description: str
    ) -> Webhook:
        """Register a receiver, for events from now on.

        Raises:
            Conflict: there are MOST already.
        """
        webhook_id = f"wh_{secrets.token_hex(8)}"
        fields = {
            "url": url,
            "secret": secret,
            "types": json.dumps(types),
            "tag": tag or "",
            "description": description,
        }
        told = {"webhook_id": webhook_id, "types": types, "tag": tag, "description": description}
        args: dict[str, Arg] = {"fields": json.dumps(fields), "most": MOST, "event_data": json.dumps(told)}
        keys = self._keys(webhook_id, "webhook", "redriven")
        if await self._lab.move("add_webhook", keys=keys, args={**args, **_names(webhook_id)}) == "full":
            raise Conflict(
                f"there are {MOST} webhooks, the most that a lab may have",
                hint="POST /api/webhook/remove some",
            )
        return await self.get(webhook_id)

    async def get(self, webhook_id: str) -> Webhook:
        """One webhook.

        Raises:
            NotFound: there is none with this id.
        """
        stored = await self._lab.hash(self._lab.keys("webhooks", webhook_id))
        if not stored:
            raise NotFound(f"there is no webhook {webhook_id!r}", hint="POST /api/webhook/list names them")
        return Webhook.parse(webhook_id, stored)

    async def all(self) -> list[Webhook]:
        """Every webhook, oldest first."""
        return [webhook for webhook, _ in await self.with_deliveries()]

    async def with_deliveries(self) -> list[tuple[Webhook, Deliveries]]:
        """Every webhook with the counts of its deliveries, oldest first."""
        keys = self._lab.keys
        ids: list[str] = await self._lab.command("ZRANGE", keys("webhooks"), 0, -1)
        stored = await self._lab.hashes([keys(part, i) for i in ids for part in ("webhooks", "deliveries")])
        return [
            (Webhook.parse(i, one), Deliveries.parse(went))
            for i, one, went in zip(ids, stored[::2], stored[1::2], strict=True)
            if one
        ]

    async def remove(self, webhook_id: str) -> None:
        """Delete a receiver and its consumer group.

        Raises:
            NotFound: there is none with this id.
        """
        if not await self._end(webhook_id, None, {"webhook_id": webhook_id}):
            raise NotFound(f"there is no webhook {webhook_id!r}", hint="POST /api/webhook/list names them")

    async def disable(self, webhook_id: str, reason: str) -> bool:
        """Stop sending to it; operators still see it. False if it was disabled or removed before."""
        return await self._end(webhook_id, reason, {"webhook_id": webhook_id, "reason": reason})

    async def note(self, webhook_id: str, status: int | None, error: str) -> None:
        """Count a delivery attempt; `error` is empty if it succeeded."""
        args = {"id": webhook_id, "status": status, "error": error[:500]}
        await self._lab.move("note_delivery", keys=self._keys(webhook_id, "deliveries"), args=args)

    async def now(self) -> float:
        """The time of Redis' clock, for signatures."""
        return await self._lab.now()

    def subscriptions(self, webhook: Webhook, consumer: str) -> list[Subscription]:
        """Its subscriptions to the lab's events and to its redriven dead letters."""
        return [
            self._stream.events(webhook.binding, consumer, made=True),
            self._stream.redriven(webhook.binding, consumer, made=True),
        ]

    async def _end(self, webhook_id: str, reason: str | None, told: dict[str, Any]) -> bool:
        answer = await self._lab.move(
            "end_webhook",
            keys=self._keys(webhook_id, "webhook", "redriven", "deliveries"),
            args={"reason": reason, "event_data": json.dumps(told), **_names(webhook_id)},
        )
        return bool(answer == "ok")

    def _keys(self, webhook_id: str, *names: str) -> dict[str, str]:
        keys = self._lab.keys
        own = {
            "webhook": keys("webhooks", webhook_id),
            "redriven": keys("redriven", f"webhook:{webhook_id}"),
            "deliveries": keys("deliveries", webhook_id),
        }
        return {name: own[name] for name in names}


def _names(webhook_id: str) -> dict[str, str]:
    """Values for moves: its id, its consumer group, and its bindings to events and redriven dead letters."""
    group = f"webhook:{webhook_id}"
    return {
        "id": webhook_id,
        "group": group,
        "events_binding": f"events {group}",
        "redriven_binding": f"redriven:{group} {group}",
    }
