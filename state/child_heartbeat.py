"""Heartbeats of a child process to its parent: bytes through a pipe.

A stopped process, or one with a hanging event loop, sends none although its pid exists.
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
"""Environment variable of the child: `<descriptor>:<inode>:<seconds between two beats>`."""
LOOKS = 10
"""A child is silent after so many looks in a row without a beat."""
START_S = 180.0
"""Seconds until a child's first beat: imports from a slow disk, or a driver that starts."""


class HeartbeatListener:
    """The parent's end. Silence counts looks, not seconds: time in which the parent was stopped is no silence."""

    def __init__(self, silent_s: float) -> None:
        self.every_s = silent_s / LOOKS
        """Seconds between two looks, and between two beats."""
        self._read_end, self._write_end = os.pipe()
        for end in (self._read_end, self._write_end):
            os.set_blocking(end, False)
        self._left = max(LOOKS, round(START_S / self.every_s))
        self._stopped = 0

    @property
    def descriptor(self) -> int:
        """The end that the child inherits."""
        return self._write_end

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment for the child. The inode guards against another file under the same descriptor."""
        return {PULSE: f"{self._write_end}:{os.fstat(self._write_end).st_ino}:{self.every_s!r}"}

    def hand_over(self) -> None:
        """Close our copy of the child's end, once the child has started."""
        os.close(self._write_end)
        self._write_end = -1

    def is_silent(self, *, stopped: bool = False) -> bool:
        """Look once: whether the child has missed too many beats; to be called every `every_s`.

        A child that is `stopped` in more than LOOKS looks in a row is silent even before its first beat.
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
class ChildHeartbeat:
    """The child's end."""

    descriptor: int
    every_s: float

    @classmethod
    def inherited(cls) -> Self | None:
        """The heartbeat to this process's parent, if that listens; child processes do not inherit it."""
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
        with contextlib.suppress(OSError):  # the pipe is full of beats, or the parent has died
            os.write(self.descriptor, b".")

    async def from_loop(self) -> None:
        """Beat until cancelled, and not while the event loop hangs."""
        while True:
            self.beat()
            await asyncio.sleep(self.every_s)

    def from_thread(self) -> None:
        """Beat for ever from a thread, for processes whose main thread blocks."""

        def go_on() -> None:
            while True:
                self.beat()
                time.sleep(self.every_s)

        threading.Thread(target=go_on, name="pulse", daemon=True).start()
