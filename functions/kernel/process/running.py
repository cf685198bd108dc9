"""A process from its first line to its exit code: settings, logs, signals, and tasks that end with it."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from functions.kernel.process.logs import start_logging
from functions.kernel.process.redaction import scrubbed
from state.errors import NightjarError
from state.program import IS_INSTALLED
from state.settings import Settings

GARBAGE = 20_000
"""New objects, less those that went, between two looks for garbage: what we do leaves hardly any in cycles."""


def run(kind: str, serve: Callable[[Settings], Coroutine[Any, Any, None]]) -> int:
    """Run a process of this kind; answers its exit code.

    It uses uvloop, which answers requests with less CPU. Processes that supervise others use asyncio's loop: uvloop
    cannot start a child in its own process group.
    """
    import uvloop

    # what a sampler multiplies is small: more threads would only take cores from the runs
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(GARBAGE)
    settings = Settings()
    start_logging(settings, kind)
    try:
        uvloop.run(serve(settings))
    except NightjarError as problem:
        return exit_with(problem)
    return 0


def exit_with(problem: NightjarError) -> int:
    """Say what is wrong and what to do, without a traceback; answers the exit code."""
    print(f"nightjar: {scrubbed(problem.detail)}", file=sys.stderr)
    if problem.hint:
        print(f"  -> {scrubbed(problem.hint)}", file=sys.stderr)
    return 1


def stop_signals(orphaned_s: float | None = None) -> asyncio.Event:
    """An event that SIGTERM and SIGINT set. A second signal ends the process at once.

    With `orphaned_s`, a process whose supervisor was killed ends after so many seconds, even if a thread computes.
    """
    stop = asyncio.Event()
    loop, parent = asyncio.get_running_loop(), os.getppid()

    def asked() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()
        if orphaned_s is not None and os.getppid() != parent:
            loop.call_later(orphaned_s, os._exit, 130)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
    return stop


async def ended(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until they have ended: before Python 3.12 `asyncio.wait_for` may swallow a cancellation."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.1)


_CHECKOUT = Path(__file__).parents[3]


def started(module: str, *arguments: str) -> tuple[str, ...]:
    """The command line that runs `module` as a process."""
    through = ("-m", "nightjar") if IS_INSTALLED else ()
    return (sys.executable, "-P", *through, "-m", module, *arguments)


def launcher() -> str:
    """Path of Nightjar's command, for other programs. In an installation it is usually beside the interpreter."""
    if not IS_INSTALLED:
        return str(_CHECKOUT / "nightjar")
    beside = Path(sys.executable).with_name("nightjar")
    return str(beside) if beside.is_file() else shutil.which("nightjar") or "nightjar"
