"""Wake-ups: a process learns of events the moment they are committed, through one Pub/Sub connection."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from pydantic_core import from_json
from redis.exceptions import RedisError

from state.client import Lab

log = logging.getLogger(__name__)


class Wakeups:
    """Hands events to waiters for their subject. Pub/Sub may lose some: each wait ends with a look at state."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)

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
        return self._waiting_for([subject])

    def types(
        self, tag: str | None, *types: str, woken: asyncio.Event | None = None
    ) -> AbstractContextManager[asyncio.Event]:
        """An event that is set as soon as one of these types happens in a tag; None is the lab."""
        return self._waiting_for([_of(tag, each) for each in types], woken)

    @contextmanager
    def _waiting_for(
        self, names: Sequence[str], woken: asyncio.Event | None = None
    ) -> Iterator[asyncio.Event]:
        woken = woken or asyncio.Event()
        for name in names:
            self._waiting[name].add(woken)
        try:
            yield woken
        finally:
            for name in names:
                self._waiting[name].discard(woken)
                if not self._waiting[name]:
                    del self._waiting[name]

    def _heard(self, text: str) -> None:
        if not self._waiting:
            return
        try:
            message = from_json(text)
            names = (str(message["subject"]), _of(message.get("tag"), message.get("type")), "*")
        except (ValueError, KeyError, TypeError):
            log.warning("wake-ups: a message that is none of ours")
            return
        for name in names:
            self._wake(name)

    def _wake(self, name: str) -> None:
        for woken in self._waiting.get(name, ()):
            woken.set()


def _of(tag: object, kind: object) -> str:
    return f"{tag} {kind}"


async def woken_within(woken: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, at most that long, and clear it."""
    try:
        await asyncio.wait_for(woken.wait(), seconds)
    except TimeoutError:
        return
    woken.clear()
