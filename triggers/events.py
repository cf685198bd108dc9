"""The events process: runs the functions that events and the clock fire. `python -P -m triggers.events`.

Each webhook has its own binding: a slow receiver delays no other.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from functions.kernel.contract import Function, On, Timed
from functions.kernel.own import load
from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.process.running import run, stop_signals
from functions.kernel.table import table
from functions.people.webhooks import message_id, payload, signed
from state.errors import NightjarError, Unavailable
from state.events import Event
from state.pool import Pool
from state.settings import Settings
from state.stream import GroupGone, Subscription
from state.webhooks import Receivers, Webhook, Webhooks
from triggers.delivery import Binding, run_binding

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


ORPHANED_S = 5.0
"""Seconds for what is being handled, once the supervisor was killed: a swarm's model may be fitted for minutes."""
FIRING_DELIVERIES = 3
"""How often a firing is tried; the next one comes anyway."""
GATHERED = "experiment_ids"
"""Field of a request that takes the experiments of a whole burst (see `On`)."""
AT_ONCE = 8
"""How many overlapping firings of one function run at once in one process."""


@dataclass(kw_only=True)
class FunctionBinding(Binding):
    """One function behind one consumer group."""

    declared: Function[Any, Any]
    trigger: On | Timed
    process: Process
    pool: Pool

    @property
    def gathers(self) -> bool:
        """Whether a call takes the experiments of a whole burst."""
        return GATHERED in self.declared.request.model_fields

    def concerns(self, event: Event) -> bool:
        # a firing comes to an event's binding only if an operator redrives it
        if not isinstance(self.trigger, On) or event.type == "cron.tick":
            return True
        on = self.trigger
        return event.type in on.events and (on.having is None or on.having in event.data)

    def bundles(self, events: Iterable[Event]) -> list[list[Event]]:
        """One bundle for each burst that the trigger debounces, else for each event; a firing is never bundled.

        A gathered event that has failed comes alone the next time, so that it does not take the others with it.
        """
        debounce = self.trigger.debounce if isinstance(self.trigger, On) else None
        bundled: dict[tuple[str | None, bool], list[Event]] = {}
        for event in events:
            key = {"tag": event.tag, "lab": ""}.get(debounce or "", event.id)
            if self.gathers and event.id in self.errors:
                key = event.id
            bundled.setdefault((key, self.gathers and "experiment_id" in event.data), []).append(event)
        return list(bundled.values())

    async def fire(self, bundle: Sequence[Event]) -> None:
        """Call the function once, with what the newest of the events says."""
        event, invoker = bundle[-1], self.process.invoker
        by_clock = not isinstance(self.trigger, On)
        caller = "clock" if by_clock else f"event:{event.type}"
        call = invoker.system(caller, "cron" if by_clock else "event", event.trace)
        facts = event.facts()
        if self.gathers and "experiment_id" in facts:
            facts[GATHERED] = list(dict.fromkeys(e.data["experiment_id"] for e in bundle))
        known = {name: facts[name] for name in self.declared.request.model_fields if name in facts}
        if not isinstance(self.trigger, On) and self.trigger.each == "gpu":
            for gpu_id in await self.pool.ids():
                await invoker.call(self.name, known | {"gpu_id": gpu_id}, call)
        else:
            await invoker.call(self.name, known, call)


def bindings(functions: Mapping[str, Function[Any, Any]], process: Process) -> list[FunctionBinding]:
    """A binding for each `On` and for each function that the clock fires; several where firings may overlap.

    Redriven dead letters come on a stream of their own, so that no other binding sees them again.
    """
    stream, consumer, pool = process.stream, process.name, Pool(process.lab)

    def bound(subscription: Subscription, declared: Function[Any, Any], trigger: On | Timed) -> None:
        most = trigger.max_deliveries if isinstance(trigger, On) else FIRING_DELIVERIES
        found.append(
            FunctionBinding(
                name=declared.name,
                subscription=subscription,
                max_deliveries=most,
                batch=Binding.batch if isinstance(trigger, On) else 1,
                declared=declared,
                trigger=trigger,
                process=process,
                pool=pool,
            )
        )

    found: list[FunctionBinding] = []
    for name, declared in functions.items():
        for trigger in declared.triggers:
            if isinstance(trigger, On):
                bound(stream.events(name, consumer), declared, trigger)
                bound(stream.redriven(name, consumer), declared, trigger)
            elif isinstance(trigger, Timed):
                for nth in range(AT_ONCE if trigger.overlap == "allow" else 1):
                    one = f"{consumer}/{nth}" if nth else consumer
                    bound(process.schedules.subscription(name, one), declared, trigger)
    return found


async def serve(settings: Settings) -> None:
    """Deliver events until SIGTERM or SIGINT; what is being handled is finished."""
    load(settings)
    stop = stop_signals(ORPHANED_S)
    async with opened("events", settings) as process:
        receivers = Receivers(private=settings.webhook_private)
        await asyncio.gather(
            *(run_binding(b, settings, stop) for b in bindings(table(), process)),
            serve_webhooks(process, receivers, stop),
        )


def main() -> int:
    return run("events", serve)


if __name__ == "__main__":
    sys.exit(main())
