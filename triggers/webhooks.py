"""Webhooks. Each has its own binding: a slow receiver delays no other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from functions.kernel.process.lifecycle import Process
from functions.people.views.messages import message_id, payload, signed
from state.errors import NightjarError, Unavailable
from state.events import Event
from state.receivers import Receivers
from state.stream import GroupGone
from state.webhooks import Webhook, Webhooks
from triggers.events.delivery import Binding, run_binding

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two looks for webhooks that were added or removed."""
MAX_DELIVERIES = 16
LONGEST_BACKOFF_S = 600.0
"""With a first backoff of 1 s, sixteen deliveries take over an hour: 1, 2, 4 ... 512, then 600 s."""
BATCH = 32
GONE = 410


class Undelivered(NightjarError):
    """A receiver did not take an event."""


@dataclass(kw_only=True)
class WebhookBinding(Binding):
    webhook: Webhook
    webhooks: Webhooks
    receivers: Receivers

    def concerns(self, event: Event) -> bool:
        w = self.webhook
        return (w.types is None or event.type in w.types) and w.tag in (None, event.tag)

    async def _sigma(self, tag: str | None) -> float | None:
        noise = (await self.webhooks.spread(tag)).noise if tag else None
        return noise.sigma if noise else None

    async def fire(self, bundle: Sequence[Event]) -> None:
        """Send these events; a 410 disables the webhook, a Retry-After pauses it."""
        for event in bundle:
            envelope = event.envelope()
            body = payload(envelope, await self._sigma(event.tag))
            message = message_id(envelope["id"], self.webhook.id)
            headers = signed(self.webhook.secret, message, int(await self.webhooks.now()), body)
            reply = await self.receivers.send(self.webhook.url, headers, body)
            await self.webhooks.note(self.webhook.id, reply.status, reply.error)
            if reply.status == GONE:
                log.error("%s: the receiver is gone (410): the webhook is disabled", self.name)
                await self.webhooks.disable(self.webhook.id, reply.error)
                raise GroupGone(f"{self.name} is disabled")
            if reply.error:
                self.paused_until = time.monotonic() + reply.retry_after_s
                raise Undelivered(reply.error)


async def serve_webhooks(process: Process, receivers: Receivers, stop: asyncio.Event) -> None:
    """Deliver to every webhook until stopped, also to those added later."""
    webhooks = Webhooks(process.lab)
    serving: dict[str, tuple[asyncio.Event, list[asyncio.Task[None]]]] = {}
    try:
        while not stop.is_set():
            with suppress(Unavailable):  # the deliveries log it
                live = {w.id: w for w in await webhooks.all() if w.disabled_at is None}
                for webhook_id, (halt, _) in serving.items():
                    if webhook_id not in live:
                        halt.set()
                for webhook_id in live.keys() - serving.keys():
                    serving[webhook_id] = _start(live[webhook_id], webhooks, process, receivers)
            serving = {i: (halt, tasks) for i, (halt, tasks) in serving.items() if not _ended(tasks)}
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await stop.wait()
    finally:
        for halt, _ in serving.values():
            halt.set()
        await asyncio.gather(*(task for _, tasks in serving.values() for task in tasks))


def _start(
    webhook: Webhook, webhooks: Webhooks, process: Process, receivers: Receivers
) -> tuple[asyncio.Event, list[asyncio.Task[None]]]:
    halt = asyncio.Event()
    found = [
        WebhookBinding(
            name=webhook.binding,
            subscription=subscription,
            max_deliveries=MAX_DELIVERIES,
            longest_backoff_s=LONGEST_BACKOFF_S,
            batch=BATCH,
            webhook=webhook,
            webhooks=webhooks,
            receivers=receivers,
        )
        for subscription in webhooks.subscriptions(webhook, process.name, process.stream)
    ]
    return halt, [asyncio.create_task(run_binding(binding, process.settings, halt)) for binding in found]


def _ended(tasks: Sequence[asyncio.Task[None]]) -> bool:
    """Whether all have ended. An error of one is raised, which ends the process."""
    for task in tasks:
        if task.done():
            task.result()
    return all(task.done() for task in tasks)
