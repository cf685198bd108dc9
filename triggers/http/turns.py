"""One long piece of work in a turn of the event loop: requests that come together hold it no longer than one does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONG = 64 * 1024
"""Bytes of a body or an answer from which reading or writing it counts as long; 64 KiB take about a millisecond."""


class Turns:
    """The turns of a web application's event loop. What is short may share one."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def do(self, work: Callable[[], T], size: Callable[[T], int]) -> T:
        """What `work` makes; where it is long, or fails, everybody else comes before the next."""
        async with self._one:
            try:
                made = work()
            except Exception:
                await asyncio.sleep(0)
                raise
            if size(made) > LONG:
                await asyncio.sleep(0)
            return made
