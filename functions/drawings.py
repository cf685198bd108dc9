"""Pictures that a process has drawn lately: it draws one at a time, and each version of one once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

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
