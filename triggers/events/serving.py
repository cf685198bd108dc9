"""The events process: runs the functions that events and the clock fire. `python -P -m triggers.events`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from functions.kernel.contract import Function, On, Timed
from functions.kernel.own import load
from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.process.running import run, stop_signals
from functions.kernel.table import table
from state.events import Event
from state.pool import Pool
from state.receivers import Receivers
from state.settings import Settings
from state.stream import Subscription
from triggers.events.delivery import Binding, run_binding
from triggers.webhooks import serve_webhooks

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
    gathers: bool = field(init=False)
    """Whether a call takes the experiments of a whole burst."""

    def __post_init__(self) -> None:
        self.gathers = GATHERED in self.declared.request.model_fields

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
