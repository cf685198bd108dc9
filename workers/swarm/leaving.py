"""Ends a worker by signals: after the first its run finishes, after the second the run is given back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from state.errors import Unavailable

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0


class Leaving:
    """The owner's wish to leave, by Ctrl-C or SIGTERM."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._asked = asyncio.Event()
        self._holding: str | None = None
        self.returns = False
        """Whether the present run is given back."""

    @property
    def is_asked(self) -> bool:
        """Whether no further run may begin."""
        return self._asked.is_set()

    def on_signals(self) -> None:
        """Handle SIGINT and SIGTERM from now on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.signalled)

    def signalled(self) -> None:
        """Take the next step: finish the run, give it back, or exit at once."""
        if self.returns:
            os._exit(130)
        if self._asked.is_set():
            self.returns = True
            self._say(
                "leaving at once" if self._holding is None else f"{self._holding} is ended, and given back"
            )
            return
        self._asked.set()
        if self._holding is None:
            self._say("leaving")
        else:
            self._say(f"{self._holding} is finished first, then I leave; Ctrl-C again gives it back now")

    @contextmanager
    def holding(self, run: str) -> Iterator[None]:
        """Name this run in messages while it is under way."""
        self._holding = run
        try:
            yield
        finally:
            self._holding = None

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than until the owner wants to leave."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()

    async def patiently(self, step: Callable[[], Awaitable[T]]) -> T | None:
        """Retry a step, at least `retry_after` later, while the server is away; None if the owner leaves."""
        pause_s = FIRST_PAUSE_S
        while not self.is_asked:
            try:
                return await step()
            except Unavailable as problem:
                seconds = max(problem.retry_after or 0.0, pause_s)
                self._say(f"{problem.detail}; asking again in {seconds:.0f} s")
                await self.pause(seconds)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return None
