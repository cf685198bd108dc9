"""How a child shows that it still answers: a byte now and then through a pipe that its parent reads.

A process that is stopped, or has a hanging event loop, sends none, although its pid lives on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

PULSE = "NIGHTJAR_PULSE"
"""Environment variable `<descriptor>:<inode>:<seconds between two beats>` of a child that is listened to."""
LOOKS = 10
"""So many looks in a row without a beat make a silence."""
START_S = 180.0
"""How long a child may take until its first beat: imports on a slow disk, a driver that wakes up."""


class Listener:
    """The parent's end.

    Silence is counted in looks, not in seconds: while the parent itself is stopped, asleep or starved it does
    not look, and what it did not look at does not count against its child.
    """

    def __init__(self, silent_s: float) -> None:
        self.every_s = silent_s / LOOKS
        """Seconds between two looks, and between two beats."""
        self._read_end, self._write_end = os.pipe()
        for end in (self._read_end, self._write_end):
            os.set_blocking(end, False)  # neither waits for the other
        self._left = max(LOOKS, round(START_S / self.every_s))
        self._stopped = 0

    @property
    def descriptor(self) -> int:
        """What the child inherits."""
        return self._write_end

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells the child of it; the inode, because a number alone may mean another file elsewhere."""
        return {PULSE: f"{self._write_end}:{os.fstat(self._write_end).st_ino}:{self.every_s!r}"}

    def hand_over(self) -> None:
        """The child has its end: close ours."""
        os.close(self._write_end)
        self._write_end = -1

    def is_silent(self, *, stopped: bool = False) -> bool:
        """One look, to be repeated every `every_s`: whether the child has missed too many of them.

        One that is seen `stopped` all along need not be waited for until its first beat.
        """
        if self._has_beaten():
            self._left = LOOKS
        else:
            self._left -= 1
        self._stopped = self._stopped + 1 if stopped else 0
        return self._left < 0 or self._stopped > LOOKS

    def close(self) -> None:
        for end in (self._read_end, self._write_end):
            if end >= 0:
                os.close(end)
        self._read_end = self._write_end = -1

    def _has_beaten(self) -> bool:
        beaten = False
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read_end, 64 * 1024):
                beaten = True
        return beaten


@dataclass(frozen=True)
class Pulse:
    """The child's end."""

    descriptor: int
    every_s: float

    @classmethod
    def inherited(cls) -> Self | None:
        """The pulse that this process's parent listens to, if it does; what this process starts gets none."""
        descriptor, _, rest = os.environ.pop(PULSE, "").partition(":")
        inode, _, every_s = rest.partition(":")
        try:
            if os.fstat(int(descriptor)).st_ino != int(inode):
                return None
            os.set_inheritable(int(descriptor), False)
            return cls(int(descriptor), float(every_s))
        except (ValueError, OSError):
            return None

    def beat(self) -> None:
        """Tell the parent once; a full pipe tells it as well, and one that has died need not know."""
        with contextlib.suppress(OSError):
            os.write(self.descriptor, b".")

    async def from_loop(self) -> None:
        """Beat until cancelled; an event loop that hangs counts as silence."""
        while True:
            self.beat()
            await asyncio.sleep(self.every_s)

    def from_thread(self) -> None:
        """Beat for good, beside a main thread that waits by design."""

        def go_on() -> None:
            while True:
                self.beat()
                time.sleep(self.every_s)

        threading.Thread(target=go_on, name="pulse", daemon=True).start()
