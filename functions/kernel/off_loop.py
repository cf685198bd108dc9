"""What takes long, off the event loop: child processes, pictures, and the import of scipy."""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from typing import Any

from state.errors import Exhausted

# -- Limits the child processes that a process's functions run at once; further ones wait.

MOST = 4
PATIENCE_S = 30.0


class Children:
    """Slots for child processes."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MOST)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Holds a slot for one child. Raises Exhausted: those of others took all turns for PATIENCE_S."""
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


# -- Pictures that a process has drawn lately: it draws one at a time, and each version of one once.

MOST_KEPT = 64
STANDS_S = 60.0
"""Seconds after which a picture is drawn anew, even if its version is the same."""

Draw = Callable[[], Coroutine[Any, Any, bytes]]


class Drawings:
    """The pictures by what they show; a repeated request costs the drawing once, however many come together."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Hashable, float, bytes]] = {}
        self._drawing: dict[Hashable, asyncio.Task[bytes]] = {}
        self._turn = asyncio.Lock()

    async def get(self, picture: Hashable, version: Hashable, draw: Draw) -> bytes:
        """This version of a picture, which `draw` draws if it is not there."""
        known = self._kept.get(picture)
        if known is not None and known[0] == version and time.monotonic() - known[1] < STANDS_S:
            return known[2]
        asked = (picture, version)
        if asked not in self._drawing:
            task = asyncio.create_task(self._drawn(picture, version, draw))
            task.add_done_callback(lambda _: self._drawing.pop(asked))
            self._drawing[asked] = task
        # a client that goes away does not end the drawing: its thread could not be stopped, and the next one began
        return await asyncio.shield(self._drawing[asked])

    async def _drawn(self, picture: Hashable, version: Hashable, draw: Draw) -> bytes:
        async with self._turn:
            content = await draw()
        self._kept.pop(picture, None)
        self._kept[picture] = (version, time.monotonic(), content)
        if len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return content


async def statistics_loaded() -> None:
    """Import scipy before a rule needs it: in a thread, because that takes most of a second once in a process."""
    if "scipy.special" not in sys.modules:
        await asyncio.to_thread(importlib.import_module, "scipy.special")
