"""How a worker's owner ends it: the first signal lets its run finish, the second gives the run back."""

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
    """What the owner has asked for by Ctrl-C or SIGTERM."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._asked = asyncio.Event()
        self._holding: str | None = None
        self.returns = False
        """Whether the run is to be given back."""

    @property
    def is_asked(self) -> bool:
        """Whether no further run is to begin."""
        return self._asked.is_set()

    def on_signals(self) -> None:
        """Hear SIGINT and SIGTERM from now on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.signalled)

    def signalled(self) -> None:
        """Go one step on: finish, give back, end at once."""
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
        """Say that this run is under way."""
        self._holding = run
        try:
            yield
        finally:
            self._holding = None

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until the owner wants to leave."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()

    async def patiently(self, step: Callable[[], Awaitable[T]]) -> T | None:
        """Take a step, again and again while the server does not answer; None where the owner leaves before.

        It is asked again as soon as it wants to be, and no sooner than after a pause that grows.
        """
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
