"""Ends a worker by signals: after the first its run finishes, after the second the run is given back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from workers.lane.client import patiently

T = TypeVar("T")


class Leaving:
    """The owner's wish to leave, by Ctrl-C or SIGTERM."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.asked = asyncio.Event()
        """Set once no further run may begin."""
        self._holding: str | None = None
        self.returns = False
        """Whether the present run is given back."""

    def on_signals(self) -> None:
        """Handle SIGINT and SIGTERM from now on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.signalled)

    def signalled(self) -> None:
        """Take the next step: finish the run, give it back, or exit at once."""
        if self.returns:
            os._exit(130)
        if self.asked.is_set():
            self.returns = True
            self._say(
                "leaving at once" if self._holding is None else f"{self._holding} is ended, and given back"
            )
            return
        self.asked.set()
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

    async def patiently(self, step: Callable[[], Awaitable[T]]) -> T | None:
        """Retry a step while the server is away; None if the owner leaves."""
        return await patiently(step, self.asked, self._say)
