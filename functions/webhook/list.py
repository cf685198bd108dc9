"""webhook::list shows the webhooks with counts of their deliveries."""

from __future__ import annotations

import builtins
from typing import Literal

from functions.contract import Request, Response, function
from state.receivers import shown
from state.records import stamp
from state.webhooks import Webhooks


class ListWebhooks(Request):
    """No fields."""


class WebhookView(Response):
    id: str
    url: str
    """Without its path, which may hold a receiver's secret."""
    description: str
    types: builtins.list[str] | None
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
    webhooks: builtins.list[WebhookView]


@function("webhook::list", role="operator")
async def list(request: ListWebhooks, webhooks: Webhooks) -> ListedWebhooks:
    """Every webhook with counts of its deliveries, without its secret and the path of its URL."""
    return ListedWebhooks(
        webhooks=[
            WebhookView(
                id=w.id,
                url=shown(w.url),
                description=w.description,
                types=[*w.types] if w.types is not None else None,
                tag=w.tag,
                created_at=stamp(w.created_at),
                status="active" if w.disabled_at is None else "disabled",
                disabled_reason=w.disabled_reason,
                delivered=d.delivered,
                failed=d.failed,
                last_at=stamp(d.last_at) if d.last_at is not None else None,
                last_status=d.last_status,
                last_error=d.last_error,
            )
            for w, d in await webhooks.with_deliveries()
        ]
    )
