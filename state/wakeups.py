"""Wake-ups: a process learns of events the moment they are committed, through one Pub/Sub connection."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.exceptions import RedisError

from state.client import Lab

log = logging.getLogger(__name__)


class Wakeups:
    """Hands each published event to those who wait for its subject.

    Pub/Sub may lose messages (a reconnect), so waiting is always bounded and followed by a look at the state.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)

    async def listen(self) -> None:
        """Receive until cancelled; reconnects after a second when Redis goes away."""
        pattern = self._lab.channel("*")
        while True:
            pubsub = self._lab.pubsub()
            try:
                await pubsub.psubscribe(pattern)
                async for message in pubsub.listen():
                    if message["type"] == "pmessage":
                        self._heard(message["data"])
            except RedisError as problem:
                log.warning("wake-ups: %s; listening again in a second", problem)
                await asyncio.sleep(1)
            finally:
                await pubsub.aclose()  # type: ignore[no-untyped-call]

    @asynccontextmanager
    async def subject(self, subject: str) -> AsyncIterator[asyncio.Event]:
        """An event that is set as soon as something happens to `subject`; `*` is any."""
        woken = asyncio.Event()
        self._waiting[subject].add(woken)
        try:
            yield woken
        finally:
            self._waiting[subject].discard(woken)
            if not self._waiting[subject]:
                del self._waiting[subject]

    def _heard(self, text: str) -> None:
        try:
            subject = json.loads(text)["subject"]
        except (ValueError, KeyError, TypeError):
            log.warning("wake-ups: a message that is none of ours")
            return
        self._wake(str(subject))

    def _wake(self, subject: str) -> None:
        for woken in (*self._waiting.get(subject, ()), *self._waiting.get("*", ())):
            woken.set()


async def woken_within(woken: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, at most so long, and arm it again."""
    try:
        await asyncio.wait_for(woken.wait(), seconds)
    except TimeoutError:
        return
    woken.clear()
