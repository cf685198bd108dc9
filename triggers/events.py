"""The events process: runs the functions that events and clock ticks fire. `python -P -m triggers.events`."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from functions.contract import Cron, Every, Function, On, table
from functions.process import Process, ended, opened, run, stop_signals
from state.errors import NightjarError, Unavailable
from state.events import UNREADABLE, Event
from state.pool import Pool
from state.settings import Settings
from state.stream import Subscription

log = logging.getLogger(__name__)

BATCH = 256
WAIT_S = 1.0
LONGEST_BACKOFF_S = 60.0


@dataclass
class Binding:
    """One function behind one consumer group."""

    declared: Function[Any, Any]
    trigger: On | Every | Cron
    subscription: Subscription
    errors: dict[str, str] = field(default_factory=dict)
    """Last error per entry that failed here, for the dead letters."""

    @property
    def max_deliveries(self) -> int:
        return self.trigger.max_deliveries if isinstance(self.trigger, On) else 3

    def concerns(self, event: Event) -> bool:
        """Whether the function waits for this event."""
        return not isinstance(self.trigger, On) or event.type in self.trigger.events

    def bundles(self, events: Iterable[Event]) -> list[list[Event]]:
        """The events of each call: bursts are collapsed as the trigger declares; ticks to one."""
        debounce = self.trigger.debounce if isinstance(self.trigger, On) else "lab"
        bundled: dict[str | None, list[Event]] = {}
        for event in events:
            key = {"tag": event.tag, "lab": ""}.get(debounce or "", event.id)
            bundled.setdefault(key, []).append(event)
        return list(bundled.values())


def bindings(functions: Mapping[str, Function[Any, Any]], process: Process) -> list[Binding]:
    """A binding for each `On`, and one for each function that the clock fires.

    What an operator redrives comes on a stream of its own, so that no other binding sees it again.
    """
    found = []
    for name, declared in functions.items():
        for trigger in declared.triggers:
            if isinstance(trigger, On):
                found.append(Binding(declared, trigger, process.stream.events(name, process.name)))
                found.append(Binding(declared, trigger, process.stream.redriven(name, process.name)))
            elif isinstance(trigger, Every | Cron):
                found.append(Binding(declared, trigger, process.stream.ticks(name, process.name)))
    return found


async def run_binding(binding: Binding, process: Process, pool: Pool, stop: asyncio.Event) -> None:
    """Deliver events until stopped; nothing that one binding suffers touches another."""
    pause = process.settings.retry_base_s
    while not stop.is_set():
        try:
            await binding.subscription.ensure()
            await _deliver_until(binding, process, pool, stop)
        except Unavailable as problem:
            log.warning("%s: %s; again in %.0f s", binding.declared.name, problem.detail, pause)
            await asyncio.sleep(pause)


async def _deliver_until(binding: Binding, process: Process, pool: Pool, stop: asyncio.Event) -> None:
    looked = 0.0
    while not stop.is_set():
        fresh = await binding.subscription.read(BATCH, min(WAIT_S, process.settings.retry_base_s))
        await _deliver(binding, fresh, process, pool)
        if time.monotonic() - looked >= process.settings.retry_base_s:
            looked = time.monotonic()
            await _deliver(binding, await _due(binding, process.settings), process, pool)


async def _due(binding: Binding, settings: Settings) -> list[Event]:
    """Entries whose backoff is over, and those of a consumer that fell silent."""
    due: dict[str, int] = {}
    for entry in await binding.subscription.pending():
        backoff = min(settings.retry_base_s * 2 ** (entry.deliveries - 1), LONGEST_BACKOFF_S)
        backoff *= random.uniform(1.0, 1.25)  # spreads retries, guards nothing
        if entry.consumer != binding.subscription.consumer:
            backoff = max(backoff, settings.claim_idle_s)
        if entry.idle_s >= backoff:
            due[entry.entry_id] = entry.deliveries
    claimed = await binding.subscription.claim(list(due), settings.retry_base_s / 2)
    hopeless = [e for e in claimed if due[e.id] >= binding.max_deliveries]
    for event in hopeless:
        error = binding.errors.pop(event.id, "its handler did not end")
        log.error("%s: giving %s %s up: %s", binding.declared.name, event.type, event.id, error)
        await binding.subscription.bury(event, error, due[event.id])
    return [e for e in claimed if e not in hopeless]


async def _deliver(binding: Binding, events: Sequence[Event], process: Process, pool: Pool) -> None:
    sub = binding.subscription
    for event in events:
        if event.type == UNREADABLE:
            log.error("%s: entry %s cannot be read", binding.declared.name, event.id)
            await sub.bury(event, "the entry cannot be read", 1)
    events = [e for e in events if e.type != UNREADABLE]
    await sub.done([e.id for e in events if not binding.concerns(e)])
    for bundle in binding.bundles(e for e in events if binding.concerns(e)):
        ids = [e.id for e in bundle]
        keeper = asyncio.create_task(_keep(sub, ids, process.settings.claim_idle_s / 3))
        try:
            await _fire(binding, bundle[-1], process, pool)
        except Unavailable:
            raise
        except Exception as problem:  # one handler's fault must not end the loop: it is retried
            binding.errors.update((i, f"{type(problem).__name__}: {problem}") for i in ids)
            log.warning(
                "%s failed on %s: %s",
                binding.declared.name,
                bundle[-1].type,
                problem,
                exc_info=not isinstance(problem, NightjarError),
            )
        else:
            await sub.done(ids)
            for i in ids:
                binding.errors.pop(i, None)
        finally:
            await ended(keeper)


async def _fire(binding: Binding, event: Event, process: Process, pool: Pool) -> None:
    declared, invoker = binding.declared, process.invoker
    by_clock = not isinstance(binding.trigger, On)
    call = invoker.system("clock" if by_clock else f"event:{event.type}")
    facts = event.facts()
    known = {name: facts[name] for name in declared.request.model_fields if name in facts}
    if not isinstance(binding.trigger, On) and binding.trigger.each == "gpu":
        for gpu_id in await pool.ids():
            await invoker.call(declared.name, known | {"gpu_id": gpu_id}, call)
    else:
        await invoker.call(declared.name, known, call)


async def _keep(subscription: Subscription, ids: Sequence[str], every_s: float) -> None:
    """While a handler works, nobody else claims its events."""
    while True:
        await asyncio.sleep(every_s)
        await subscription.keep(ids)


async def serve(settings: Settings) -> None:
    """Deliver events until SIGTERM or SIGINT; what is being handled is finished."""
    stop = stop_signals()
    async with opened("events", settings) as process:
        pool = Pool(process.lab)
        await asyncio.gather(*(run_binding(b, process, pool, stop) for b in bindings(table(), process)))


if __name__ == "__main__":
    sys.exit(run(serve))
