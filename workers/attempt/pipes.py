"""The pipes between a worker and its training script."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
from io import FileIO


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
    return (
        resources.enter_context(FileIO(read_end, "rb")),
        resources.enter_context(FileIO(write_end, "wb")),
    )


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
