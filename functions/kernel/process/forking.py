"""Starts a process of ours as a fork of this one. Shared imports take most of a start."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import gc
import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NoReturn

from state.own_processes import tell

_PR_SET_PDEATHSIG = 1
_DEFAULTS = (signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2)
_ORPHANED = 143
"""Exit status of a child whose parent died before the child could ask for its death signal."""
_MOST_DESCRIPTORS = 1 << 20


@dataclass(frozen=True)
class Forked:
    """A child of this process."""

    pid: int

    async def wait(self) -> int:
        """Its exit status, after its end. The status of a signal is negative."""
        loop = asyncio.get_running_loop()
        watched = os.pidfd_open(self.pid)
        ended = asyncio.Event()
        loop.add_reader(watched, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(watched)
            os.close(watched)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])  # noqa: ASYNC222  # it has ended


class Threads:
    """The threads for blocking calls of the running event loop. They can be ended before a fork."""

    def __init__(self) -> None:
        self._renew()

    def end(self) -> None:
        """Wait for what they do and end them; the next blocking call starts others."""
        self._pool.shutdown()
        self._renew()

    def _renew(self) -> None:
        self._pool = ThreadPoolExecutor(thread_name_prefix="asyncio")
        asyncio.get_running_loop().set_default_executor(self._pool)


def is_possible() -> bool:
    """Whether a fork is safe: this process has one thread. A lock of another thread is never released in the fork."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and threading.active_count() == 1


def forked(
    main: Callable[[], int],
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    output: int,
    keep: Sequence[int] = (),
) -> Forked:
    """Run `main` in a fork of this process, as if `argv` had been started with this environment.

    It leads a process group, writes to the descriptor `output`, has those of `keep` and no other, and gets SIGTERM
    when the calling thread ends. Where the kernel does not let it go by its own name, it becomes `argv`.
    """
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    # a signal that came to the child before it has left our event loop would be told to us
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _become(main, argv, environ, output, keep, parent, blocked)
    finally:
        if os.getpid() == parent:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    with contextlib.suppress(PermissionError, ProcessLookupError):  # both ends set it: whoever is first
        os.setpgid(pid, pid)
    return Forked(pid)


def _become(
    main: Callable[[], int],
    argv: Sequence[str],
    environ: Mapping[str, str],
    output: int,
    keep: Sequence[int],
    parent: int,
    blocked: Collection[int],
) -> NoReturn:
    """Leave everything of the parent behind; never returns into its frames."""
    code = 1
    try:
        gc.freeze()  # what is the parent's stays as it is, and shared
        _leave_event_loop()
        _lead(parent)
        _redirect(output, keep)
        os.environ.clear()
        os.environ.update(environ)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if not tell(argv, environ):
            for descriptor in keep:
                os.set_inheritable(descriptor, True)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execve(argv[0], [*argv], dict(environ))
        random.seed()
        code = contextvars.Context().run(main)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException as problem:  # noqa: BLE001  # told as at the end of any process
        sys.excepthook(type(problem), problem, problem.__traceback__)
    finally:
        with contextlib.suppress(BaseException):
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _leave_event_loop() -> None:
    signal.set_wakeup_fd(-1)
    for number in _DEFAULTS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asyncio.events._set_running_loop(None)
    asyncio.set_event_loop(None)


def _lead(parent: int) -> None:
    """Lead a process group, and end with the parent."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(_ORPHANED)


def _redirect(output: int, keep: Sequence[int]) -> None:
    """Read nothing, write to `output`, and close all else."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, output, output)):
        os.dup2(descriptor, number)
    first = 3
    for descriptor in sorted(keep):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, _MOST_DESCRIPTORS)
