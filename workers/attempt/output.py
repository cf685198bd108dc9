"""What a run prints and reports while it works: its capped log, its ticks, and how long it is silent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import re
from collections import deque
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

from functions.formats.metrics_block import named_number, without_escapes
from functions.runs.rules.ticks import is_first_in_bucket

_log = logging.getLogger(__name__)

CAP_BYTES = 8 * 1024 * 1024


class CappedLog:
    """Half of the cap is for the beginning, half for the end, which holds the metrics block.

    The beginning is written at once; the end stays in memory until the log is closed.
    If the disk is full, the file is cut short and the run goes on.
    """

    def __init__(self, path: Path, *, cap_bytes: int = CAP_BYTES) -> None:
        self._half = cap_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0
        self._path = path
        self._file = path.open("wb", buffering=0)
        self.written = 0
        """Bytes received so far, kept or not."""

    def write(self, data: bytes) -> None:
        self.written += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            self._store(data[:room])
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._half:  # cut rarely: each cut moves the whole buffer
            self._cut()

    def text(self) -> str:
        """The kept text; a line in brackets says how many bytes are left out."""
        self._cut()
        return (self._head + self._gap() + self._tail).decode("utf-8", "replace")

    def newest(self, count: int = 16 * 1024) -> str:
        """About the last `count` bytes."""
        kept = self._tail[-count:] if len(self._tail) >= count else (self._head + self._tail)[-count:]
        return kept.decode("utf-8", "replace")

    def close(self) -> None:
        self._cut()
        self._store(self._gap() + self._tail)
        self._file.close()

    def _cut(self) -> None:
        surplus = len(self._tail) - self._half
        if surplus > 0:
            self._left_out += surplus
            del self._tail[:surplus]

    def _gap(self) -> bytes:
        return b"\n[%d bytes left out]\n" % self._left_out if self._left_out else b""

    def _store(self, data: bytes | bytearray) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            _log.warning("the log %s is incomplete: %s", self._path, error)


def parse_tick(line: bytes) -> tuple[float, float] | None:
    """Metric and progress of one tick; None if the line is not a tick."""
    try:
        tick = json.loads(line)
        metric, progress = float(tick["m"]), float(tick["p"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return (metric, progress) if math.isfinite(metric) and math.isfinite(progress) else None


def open_pipe(resources: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    """The reading and the writing end; `resources` closes them."""
    read_end, write_end = os.pipe()
    return (resources.enter_context(FileIO(read_end, "rb")), resources.enter_context(FileIO(write_end, "wb")))


def inheritable_name(pipe: FileIO) -> str:
    """`fd:inode`; in another process the descriptor alone may be another file."""
    return f"{pipe.fileno()}:{os.fstat(pipe.fileno()).st_ino}"


def read_now(fd: int) -> bytes:
    """The bytes that can be read without waiting; empty if there are none, or at the end."""
    try:
        return os.read(fd, 64 * 1024)
    except BlockingIOError:
        return b""


async def until_readable(fd: int) -> None:
    """Return when there are bytes to read, or at the end."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(fd, wake)
    try:
        await readable
    finally:
        loop.remove_reader(fd)


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
            if is_first_in_bucket(share, self._entered):
                self._firsts.append(tick)
        self._announce()

    async def next(self) -> Tick:
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


_IDLE = 0.05
"""Share of one CPU core up to which a run counts as idle: a thread that waits, or looks now and then."""


class Silence:
    """How long a run has neither printed nor reported; times in seconds of one clock."""

    def __init__(self, lasting_s: float, now: float) -> None:
        self.since = now
        self._lasting_s = lasting_s
        self._begun = now
        self._idle_since = now
        self._cpu_s = 0.0

    def ends(self, now: float, cpu_s: float) -> None:
        """Begin anew: the run, which has used `cpu_s` seconds so far, has printed or reported something."""
        self.since = self._idle_since = now
        self._cpu_s = cpu_s

    def lasts(self, now: float, cpu_s: float) -> bool:
        """Whether it lasts long enough: while the run computes, as long as it had run before."""
        if cpu_s - self._cpu_s > _IDLE * self._lasting_s:
            self._idle_since, self._cpu_s = now, cpu_s
        is_idle = now - self._idle_since >= self._lasting_s
        return is_idle or now - self.since >= max(self._lasting_s, self.since - self._begun)


# -- Lines that tell progress

LONGEST_LINE = 400
"""Bytes of a line that are looked at."""

Tick = tuple[float, float]
"""A loss and the share of the run that is done, 0 to 1."""

_BREAK = re.compile(rb"[\r\n]")
_LOSS = "loss"
_HEAD = re.compile(
    r"\s*step\s+[0-9]+(?:/[0-9]+)?\s*\(\s*([0-9]+(?:\.[0-9]*)?)\s*%\s*\)\s*", re.ASCII | re.IGNORECASE
)


class ProgressLines:
    """Finds the progress lines in a script's output, however it is cut into pieces.

    A line ends with a carriage return or a newline. Its loss counts as soon as a `|` stands behind it: scripts that
    overwrite their line end it only when they print the next one. A line whose share is lower than one before is no
    progress: a summary may repeat old lines.
    """

    def __init__(self) -> None:
        self._begun = b""
        """The beginning of the line that has not ended, at most one byte more than is looked at."""
        self._is_read = False
        """Whether that line has told its loss already."""
        self._furthest = 0.0

    def feed(self, data: bytes) -> Sequence[Tick]:
        """What the next piece of the output completes, in its order."""
        text = self._begun + data
        ended = max(text.rfind(b"\r"), text.rfind(b"\n")) + 1
        found: list[Tick | None] = []
        if ended:
            whole = text[: ended - 1]
            lines = _BREAK.split(whole) if b"|" in whole else []
            found += map(tick_in, lines[1:] if self._is_read else lines)
            self._is_read = False
        self._begun = text[ended : ended + LONGEST_LINE + 1]
        if not self._is_read and (tick := tick_in(self._begun, has_ended=False)) is not None:
            self._is_read = True
            found.append(tick)
        return [tick for tick in found if tick is not None and self._is_progress(tick)]

    def _is_progress(self, tick: Tick) -> bool:
        _, share = tick
        is_further = share >= self._furthest
        self._furthest = max(self._furthest, share)
        return is_further


def tick_in(line: bytes, *, has_ended: bool = True) -> Tick | None:
    """The loss and the share of one line; None: it has none, or its loss is not finite, or it is not there whole."""
    head, *fields = without_escapes(line[:LONGEST_LINE].decode("utf-8", "replace")).split("|")
    if not has_ended or len(line) > LONGEST_LINE:
        fields = fields[:-1]
    begins = _HEAD.fullmatch(head)
    if begins is None:
        return None
    for field in fields:
        named = named_number(field)
        if named is not None and named[0] == _LOSS:
            loss = named[1]
            return (loss, min(float(f"{begins[1]}e-2"), 1.0)) if math.isfinite(loss) else None
    return None
