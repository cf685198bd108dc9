"""Keeps a lab's processes running until it is asked to stop, then drains them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from functions.kernel.process.forking import Forked, forked, is_possible
from state.child_heartbeat import HeartbeatListener
from state.own_processes import tethered

_KEEP_LOG_BYTES = 10_000_000


@dataclass(frozen=True)
class ProcessSpec:
    """One process to keep running.

    `env`: its whole environment (None: ours). `drain_s`: seconds to end after SIGTERM. `silent_s`: seconds without a
    heartbeat after which it counts as dead (None: it sends none). `main`: the function of `argv`. The first start may
    run it in a fork of us, which has all imports.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] | None
    drain_s: float
    silent_s: float | None = None
    main: Callable[[], int] | None = None


@dataclass(frozen=True)
class RestartBackoff:
    """Delays before a dead process is started again."""

    first_s: float = 0.5
    most_s: float = 10.0
    forgiven_after_s: float = 30.0

    def delay(self, deaths: int) -> float:
        """Seconds after the n-th death in a row."""
        return min(self.most_s, self.first_s * 2.0 ** min(deaths - 1, 60))


@dataclass(frozen=True)
class _Child:
    process: Process | Forked
    listener: HeartbeatListener | None


class ProcessGroup:
    """Children that are restarted when they die or fall silent, and drained together.

    Each leads its own process group, so a Ctrl-C at the terminal reaches only us. Should we be killed,
    the kernel sends them SIGTERM, not SIGKILL: they still hand back what they hold.
    """

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        log_dir: Path,
        announce: Callable[[str], None],
        backoff: RestartBackoff = RestartBackoff(),  # frozen
    ) -> None:
        self._specs = list(specs)
        self._log_dir = log_dir
        self._announce = announce
        self._backoff = backoff
        self._running: dict[str, Process | Forked] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._draining = asyncio.Event()
        self._forced = False

    @property
    def pids(self) -> dict[str, int]:
        return {name: child.pid for name, child in self._running.items()}

    async def start(self) -> None:
        """Start every process once, in order. Raises OSError when a log cannot be written."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        for spec in self._specs:
            child = await self._spawn(spec, fork=True)
            self._keepers[spec.name] = asyncio.create_task(self._keep(spec, child), name=f"keep {spec.name}")

    async def run_until(self, stop: asyncio.Event, *beside: asyncio.Task[None]) -> None:
        """Run until `stop` or the end of a task beside them, a fault. Raises its error, or a start's."""
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            done, _ = await asyncio.wait(
                [stopping, *beside, *self._keepers.values()], return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopping.cancel()
        for task in done - {stopping}:
            task.result()

    async def drain(self) -> None:
        """SIGTERM to all, the last started first, those without a time limit before; kill the late ones."""
        self._draining.set()
        left = [spec for spec in reversed(self._specs) if spec.name in self._running]
        if left:
            names = ", ".join(spec.name for spec in left)
            self._announce(f"stopping; waiting for {names} (Ctrl-C again ends them at once)")
        for has_limit in (False, True):
            now = asyncio.get_running_loop().time()
            ending = [spec for spec in left if math.isfinite(spec.drain_s) == has_limit]
            for spec in ending:
                self._signal(spec.name, signal.SIGTERM)
            await self._wait_for({spec.name: now + spec.drain_s for spec in ending})
        await asyncio.gather(*self._keepers.values(), return_exceptions=True)  # run_until has raised them

    def force(self) -> None:
        """Kill every process and its process group. May be called from a signal handler."""
        self._forced = True
        self._draining.set()
        for name in list(self._running):
            self._signal(name, signal.SIGKILL)

    async def _wait_for(self, deadlines: dict[str, float]) -> None:
        time = asyncio.get_running_loop().time
        while waiting := {name: self._keepers[name] for name in deadlines}:
            patience = min(deadlines.values()) - time()
            await asyncio.wait(
                waiting.values(),
                timeout=None if math.isinf(patience) else max(0.0, patience),
                return_when=asyncio.FIRST_COMPLETED,
            )
            ended = [name for name, keeper in waiting.items() if keeper.done()]
            for name in ended:
                del deadlines[name]
            if ended and deadlines:
                self._announce(f"waiting for {', '.join(deadlines)}")
            for name in [name for name, deadline in deadlines.items() if deadline <= time()]:
                self._announce(f"{name} took too long to end: killed")
                self._signal(name, signal.SIGKILL)
                deadlines[name] = math.inf

    async def _keep(self, spec: ProcessSpec, child: _Child) -> None:
        time = asyncio.get_running_loop().time
        deaths = 0
        while True:
            born = time()
            status = await self._end_of(spec, child)
            del self._running[spec.name]
            if self._draining.is_set():
                return
            deaths = 1 if time() - born >= self._backoff.forgiven_after_s else deaths + 1
            delay = self._backoff.delay(deaths)
            self._announce(
                f"restarting {spec.name} in {delay:g} s: exit status {status} (log: {self._log(spec)})"
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._draining.wait(), delay)
                return
            child = await self._spawn(spec)

    async def _spawn(self, spec: ProcessSpec, *, fork: bool = False) -> _Child:
        log = self._log(spec)
        if log.exists() and log.stat().st_size > _KEEP_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
        with contextlib.ExitStack() as unless_started, log.open("ab") as out:
            listener, env = None, spec.env
            if spec.silent_s is not None:
                listener = unless_started.enter_context(contextlib.closing(HeartbeatListener(spec.silent_s)))
                env = {**(os.environ if env is None else env), **listener.environment}
            keep = [listener.descriptor] if listener else []
            process = await _started(spec, env, out, keep, fork=fork)
            unless_started.pop_all()
        if listener is not None:
            listener.hand_over()
        self._running[spec.name] = process
        if self._draining.is_set():  # asked to while it was being started
            self._signal(spec.name, signal.SIGKILL if self._forced else signal.SIGTERM)
        return _Child(process, listener)

    async def _end_of(self, spec: ProcessSpec, child: _Child) -> int:
        """The exit status of a child that has ended, or was killed because it had fallen silent."""
        listener = child.listener
        if listener is None:
            return await child.process.wait()
        ending = asyncio.ensure_future(child.process.wait())
        with contextlib.closing(listener):
            while not (await asyncio.wait([ending], timeout=listener.every_s))[0]:
                if listener.is_silent(stopped=_is_stopped(child.process.pid)):
                    self._announce(f"{spec.name} gave no sign of life for {spec.silent_s:g} s: killed")
                    self._signal(spec.name, signal.SIGKILL)
                    break
        return await ending

    def _signal(self, name: str, number: signal.Signals) -> None:
        """Send SIGTERM to the child, which ends its own children best; SIGKILL to its whole group."""
        pid = self._running[name].pid
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)  # not Process.send_signal: it may reap the child behind asyncio's back

    def _log(self, spec: ProcessSpec) -> Path:
        return self._log_dir / f"{spec.name}.log"


async def _started(
    spec: ProcessSpec, env: Mapping[str, str] | None, out: IO[bytes], keep: Sequence[int], *, fork: bool
) -> Process | Forked:
    if fork and spec.main is not None and is_possible():
        environ = os.environ if env is None else env
        return forked(spec.main, spec.argv, environ, output=out.fileno(), keep=keep)
    return await asyncio.create_subprocess_exec(
        *tethered(spec.argv), stdin=DEVNULL, stdout=out, stderr=out, env=env, pass_fds=keep, process_group=0
    )


def _is_stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


@contextlib.contextmanager
def stopping_on_signals(group: ProcessGroup) -> Iterator[asyncio.Event]:
    """An event that Ctrl-C, SIGTERM or SIGHUP sets; after that Ctrl-C or its parent's death forces the group."""
    loop, parent = asyncio.get_running_loop(), os.getppid()
    stop = asyncio.Event()

    def interrupted() -> None:
        if stop.is_set():
            group.force()
        stop.set()

    def terminated() -> None:
        if stop.is_set() and os.getppid() != parent:
            group.force()  # our supervisor asked us to stop, and was then killed
        stop.set()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, terminated)
    loop.add_signal_handler(signal.SIGHUP, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
