"""Keeps the lab's own Redis alive: started again when it dies, killed when it falls silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from functions.process.supervision import Backoff
from state.embedded import EmbeddedRedis
from state.errors import Unavailable
from state.pulse import LOOKS

LOOK_S = 0.5
BACKOFF = Backoff(first_s=1.0, most_s=30.0)


class OwnRedis:
    """The Redis that `up` has started; without one (another's is used) nothing is kept."""

    def __init__(self, redis: EmbeddedRedis | None, silent_s: float, announce: Callable[[str], None]) -> None:
        self._redis = redis
        self._silent_s = silent_s
        self._announce = announce
        self.refusal: Unavailable | None = None
        """Why it does not come back, while it does not."""

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[list[asyncio.Task[None]]]:
        """Keep it alive within; the tasks that do so end only by a fault."""
        if self._redis is None:
            yield []
            return
        keeping = [
            asyncio.create_task(self._keep(self._redis), name="keep Redis"),
            asyncio.create_task(self._end_silent(self._redis), name="listen to Redis"),
        ]
        try:
            yield keeping
        finally:
            for task in keeping:
                task.cancel()

    async def _keep(self, redis: EmbeddedRedis) -> None:
        """Start a dead Redis again, at the same address and with the same data, however often it refuses.

        `up` does not end for that: once an operator has freed the disk, or repaired the data as the hint says,
        the lab goes on by itself. `revive` blocks this loop until Redis has loaded its data, signals too: only
        the main thread may fork it, for the kernel ends it with its thread.
        """
        refusals = 0
        while True:
            try:
                if redis.revive():
                    self._announce("Redis had died; it is started again")
                    self.refusal, refusals = None, 0
            except (Unavailable, OSError) as problem:
                refusals += 1
                self._refuse(problem)
            await asyncio.sleep(BACKOFF.delay(refusals) if refusals else LOOK_S)

    async def _end_silent(self, redis: EmbeddedRedis) -> None:
        """Kill a Redis that gives no answer for `silent_s`; as in state.pulse, silence is counted in looks."""
        every_s = self._silent_s / LOOKS
        server, left = redis.pid, LOOKS
        while True:
            heard, _ = await asyncio.gather(
                asyncio.to_thread(redis.is_heard, every_s), asyncio.sleep(every_s)
            )
            if heard or redis.pid != server:
                server, left = redis.pid, LOOKS
                continue
            left -= 1
            if left == 0:
                self._announce(f"Redis gave no answer for {self._silent_s:g} s: killed")
                redis.kill()

    def _refuse(self, problem: Unavailable | OSError) -> None:
        """Announce a reason once, not at every attempt."""
        if not isinstance(problem, Unavailable):
            problem = Unavailable(f"Redis cannot be started: {problem}")
        if self.refusal is None or self.refusal.detail != problem.detail:
            self._announce(f"Redis died and does not start again; trying on. {problem.detail}")
            if problem.hint:
                self._announce(f"  -> {problem.hint}")
        self.refusal = problem
