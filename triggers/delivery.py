"""Delivery of stream entries to bindings: at least once, with retries, then to the dead letters."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from functions.kernel.process.alive import has_died
from functions.kernel.process.logs import bound
from functions.kernel.process.running import ended
from state.errors import NightjarError, Unavailable
from state.events import UNREADABLE, Event
from state.settings import Settings
from state.stream import GroupGone, Subscription

log = logging.getLogger(__name__)

FIRST_BACKOFF_S = 1.0
"""Pause before the first retry of a handler, doubled for each further one."""
WAIT_S = 1.0
"""Seconds for which new entries are waited for; and between looks for what is due again, if nothing has failed."""
SERVED_S = 60.0
"""Seconds between two notes that a binding is served; retention counts in days."""


@dataclass(kw_only=True)
class Binding(ABC):
    """One consumer group, the handler of its entries and its retries."""

    name: str
    subscription: Subscription
    max_deliveries: int = 8
    longest_backoff_s: float = 60.0
    batch: int = 256
    errors: dict[str, str] = field(default_factory=dict)
    """Last error of each entry that failed in this process, for the dead letters."""
    paused_until: float = 0.0
    """Time of this host's monotonic clock until which it handles nothing."""

    @abstractmethod
    def concerns(self, event: Event) -> bool:
        """Whether to handle this event; others are acknowledged at once."""

    @abstractmethod
    async def fire(self, bundle: Sequence[Event]) -> None:
        """Handle these events, oldest first; an error counts for all of them."""

    def bundles(self, events: Iterable[Event]) -> list[list[Event]]:
        """The events of each call of `fire`."""
        return [[event] for event in events]


async def run_binding(binding: Binding, settings: Settings, stop: asyncio.Event) -> None:
    """Deliver until stopped, or until the group is gone for good."""
    while not stop.is_set():
        try:
            await _serve(binding, settings, stop)
        except GroupGone as problem:
            if not await _made_again(binding):
                return
            log.warning("%s: %s; it was made again", binding.name, problem.detail)
        except Unavailable as problem:
            log.warning("%s: %s; again in %.0f s", binding.name, problem.detail, FIRST_BACKOFF_S)
            await asyncio.sleep(FIRST_BACKOFF_S)
        else:
            return


async def _made_again(binding: Binding) -> bool:
    try:
        return await binding.subscription.serve()
    except Unavailable:
        return True  # the loop tries again


async def _serve(binding: Binding, settings: Settings, stop: asyncio.Event) -> None:
    served = looked = float("-inf")
    while not stop.is_set():
        if time.monotonic() - served >= SERVED_S:
            served = time.monotonic()
            if not await binding.subscription.serve():
                return
        await _ready(binding, stop)
        look_s = FIRST_BACKOFF_S if binding.errors else max(WAIT_S, FIRST_BACKOFF_S)
        wait_s = min(WAIT_S, look_s)
        fresh = await binding.subscription.read(binding.batch, wait_s, binding.concerns)
        await _deliver(binding, fresh, settings, stop)
        if time.monotonic() - looked >= look_s:
            looked = time.monotonic()
            await _deliver(binding, await _due(binding, settings), settings, stop)


async def _ready(binding: Binding, stop: asyncio.Event) -> None:
    """Wait until the binding's pause is over, or until `stop`."""
    rest = binding.paused_until - time.monotonic()
    if rest > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(rest):
                await stop.wait()


async def _due(binding: Binding, settings: Settings) -> list[Event]:
    """Claim the entries whose retry is due, oldest first; also those of a dead or silent consumer."""
    due: dict[str, int] = {}
    for entry in await binding.subscription.pending():
        backoff = min(FIRST_BACKOFF_S * 2.0 ** min(entry.deliveries - 1, 32), binding.longest_backoff_s)
        backoff *= random.uniform(1.0, 1.25)  # spreads retries
        if entry.consumer != binding.subscription.consumer and not has_died(entry.consumer):
            backoff = max(backoff, settings.silent_s)
        if entry.idle_s >= backoff and len(due) < binding.batch:
            due[entry.entry_id] = entry.deliveries
    claimed = await binding.subscription.claim(list(due), FIRST_BACKOFF_S / 2)
    hopeless = [e for e in claimed if due[e.id] >= binding.max_deliveries]
    for event in hopeless:
        error = binding.errors.pop(event.id, "its handler did not end")
        log.error("%s: giving %s %s up: %s", binding.name, event.type, event.id, error)
        await binding.subscription.bury(event, error, due[event.id])
    return [e for e in claimed if e not in hopeless]


async def _deliver(
    binding: Binding, events: Sequence[Event], settings: Settings, stop: asyncio.Event
) -> None:
    """Handle these events; after `stop` the rest is left for another process."""
    sub = binding.subscription
    for event in events:
        if event.type == UNREADABLE:
            log.error("%s: entry %s cannot be read", binding.name, event.id)
            await sub.bury(event, "the entry cannot be read", 1)
    events = [e for e in events if e.type != UNREADABLE]
    await sub.done([e.id for e in events if not binding.concerns(e)])
    wanted = [e for e in events if binding.concerns(e)]
    waiting = {e.id for e in wanted}
    async with _kept(sub, waiting, settings.silent_s / 3):
        acknowledging = list[asyncio.Task[None]]()
        try:
            for bundle in binding.bundles(wanted):
                await _ready(binding, stop)
                if stop.is_set():
                    return
                ids = [e.id for e in bundle]
                with bound(event_id=bundle[-1].id, event_type=bundle[-1].type):
                    if await _is_handled(binding, bundle, ids):
                        acknowledging.append(asyncio.create_task(sub.done(ids)))
                waiting.difference_update(ids)
        finally:
            await asyncio.gather(*acknowledging)


async def _is_handled(binding: Binding, bundle: Sequence[Event], ids: Sequence[str]) -> bool:
    try:
        await binding.fire(bundle)
    except GroupGone:
        raise
    except Exception as problem:  # one handler's fault must not end the loop: it is retried
        binding.errors.update((i, f"{type(problem).__name__}: {problem}") for i in ids)
        log.warning(
            "%s failed on %s: %s",
            binding.name,
            bundle[-1].type,
            problem,
            exc_info=not isinstance(problem, NightjarError),
        )
        # the backoff begins now, not when the entry was read; Unavailable where it is our own Redis that is away
        await binding.subscription.keep(ids)
        return False
    for i in ids:
        binding.errors.pop(i, None)
    return True


@asynccontextmanager
async def _kept(subscription: Subscription, waiting: Collection[str], every_s: float) -> AsyncIterator[None]:
    """Keep other consumers from claiming the `waiting` entries of a batch meanwhile."""
    if not waiting:
        yield
        return
    keeper = asyncio.create_task(_keep(subscription, waiting, every_s))
    try:
        yield
    finally:
        await ended(keeper)


async def _keep(subscription: Subscription, waiting: Collection[str], every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await subscription.keep(sorted(waiting))
        except (GroupGone, Unavailable) as problem:
            log.warning("%s: cannot keep a claim: %s", subscription.group, problem.detail)
