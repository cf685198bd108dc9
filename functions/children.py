"""Limits the child processes that a process's functions run at once; further ones wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from state.errors import Exhausted

MOST = 4
PATIENCE_S = 30.0


class Children:
    """Slots for child processes."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MOST)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Holds a slot for one child.

        Raises:
            Exhausted: those of others took all turns for PATIENCE_S.
        """
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._free.acquire()
        except TimeoutError as problem:
            raise Exhausted(
                f"{MOST} such requests of others are worked on, and more wait",
                hint="come back after Retry-After",
                retry_after=5.0,
            ) from problem
        try:
            yield
        finally:
            self._free.release()
