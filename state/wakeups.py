"""Wake-ups: a process learns of events the moment they are committed, through one Pub/Sub connection."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from pydantic_core import from_json
from redis.exceptions import RedisError

from state.client import Lab

log = logging.getLogger(__name__)
W = TypeVar("W")


class Wakeups:
    """Hands events to waiters for their subject. Pub/Sub may lose some: each wait ends with a look at state."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._subjects: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._types: dict[str, set[tuple[str | None, asyncio.Event]]] = defaultdict(set)
        """By type of event: the tag, and who waits for it."""

    async def listen(self) -> None:
        """Receive until cancelled; reconnects after a second when Redis goes away or falls silent."""
        while True:
            try:
                await self._lab.hear(self._heard)
            except (RedisError, TimeoutError) as problem:
                log.warning("wake-ups: %s; listening again in a second", str(problem) or "Redis is silent")
            except Exception:  # without its ears every wait of this process would last to its end
                log.exception("wake-ups failed; listening again in a second")
            await asyncio.sleep(1)

    def subject(self, subject: str) -> AbstractContextManager[asyncio.Event]:
        """An event that is set as soon as something happens to `subject`; `*` is any."""
        woken = asyncio.Event()
        return _waiting(self._subjects, [subject], woken, woken)

    def types(
        self, tag: str | None, *types: str, woken: asyncio.Event | None = None
    ) -> AbstractContextManager[asyncio.Event]:
        """An event that is set as soon as one of these types happens in a tag; None is the lab."""
        woken = woken or asyncio.Event()
        return _waiting(self._types, types, (tag, woken), woken)

    def _heard(self, channel: str, text: str) -> None:
        of_type = self._types.get(channel.rpartition(":")[2], ())
        if not of_type and not self._subjects:
            return  # most events: nobody waits for them here
        try:
            message = from_json(text)
            subject, tag = str(message["subject"]), message.get("tag")
        except (ValueError, KeyError, TypeError):
            log.warning("wake-ups: a message that is none of ours")
            return
        for woken in (*self._subjects.get(subject, ()), *self._subjects.get("*", ())):
            woken.set()
        for wanted, woken in of_type:
            if wanted == tag:
                woken.set()


@contextmanager
def _waiting(
    waiting: dict[str, set[W]], names: Sequence[str], waiter: W, woken: asyncio.Event
) -> Iterator[asyncio.Event]:
    """Let `waiter` stand under these names meanwhile."""
    for name in names:
        waiting[name].add(waiter)
    try:
        yield woken
    finally:
        for name in names:
            waiting[name].discard(waiter)
            if not waiting[name]:
                del waiting[name]


async def woken_within(woken: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, at most that long, and clear it."""
    try:
        await asyncio.wait_for(woken.wait(), seconds)
    except TimeoutError:
        return
    woken.clear()
