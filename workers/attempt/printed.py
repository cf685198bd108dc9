"""Which of the progress lines that a script prints become ticks, and when."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque

from functions.formats.progress_line import ProgressLines, Tick
from functions.rules.stopping.buckets import bucket_of


class PrintedTicks:
    """The first line within each bucket becomes a tick at once, of the others the newest every `every_s` seconds.

    So a script may print as fast as it likes, and is ranked by what it would have reported.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._lines = ProgressLines()
        self._entered: set[float] = set()
        self._firsts: deque[Tick] = deque()
        """Of buckets; one of each, in the order of the run."""
        self._newest: Tick | None = None
        self._any = asyncio.Event()
        self._urgent = asyncio.Event()
        self._taken_at = -math.inf

    def hear(self, output: bytes) -> None:
        """Read the next piece of the script's output."""
        for tick in self._lines.feed(output):
            self._newest = tick
            _, share = tick
            bucket = bucket_of(share)
            if bucket is not None and bucket not in self._entered:
                self._entered.add(bucket)
                self._firsts.append(tick)
        self._announce()

    async def next(self) -> Tick:
        """Wait for the next tick."""
        await self._any.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._taken_at + self._every_s):
                await self._urgent.wait()
        tick = self._firsts.popleft() if self._firsts else self._newest
        assert tick is not None
        if tick is self._newest:
            self._newest = None
        self._announce()
        self._taken_at = asyncio.get_running_loop().time()
        return tick

    def _announce(self) -> None:
        for event, is_set in ((self._urgent, bool(self._firsts)), (self._any, self._newest is not None)):
            if is_set:
                event.set()
            else:
                event.clear()
