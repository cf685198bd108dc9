"""Runs one command until it ends or the lab ends it, then kills every process of the attempt."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from functions.formats.metrics_block import newest_lines
from functions.formats.printed_score import Printed, PrintedScore
from functions.kernel.lanes import Extension, Order
from functions.kernel.process.ending import children_of
from functions.kernel.process.running import ended
from state.policy import TickSource
from state.records import TimeSpent
from workers.attempt import processes
from workers.attempt.isolation import Reach
from workers.attempt.job import Watcher
from workers.attempt.output import (
    CappedLog,
    PrintedTicks,
    Silence,
    inheritable_name,
    open_pipe,
    parse_tick,
    read_now,
    until_readable,
)
from workers.attempt.usage import (
    Ceilings,
    CpuSeconds,
    Excess,
    below,
    bytes_on_disk,
    excess_of,
    excess_of_disk,
)

_log = logging.getLogger(__name__)

_LAUNCH = Path(__file__).with_name("launch.py")
_LONGEST_TICK = 4096
HIDDEN_FD = "NIGHTJAR_HIDDEN_FD"
_REAP_S = 5.0
_MOST_PROCESSES = 10_000
"""Most processes that are measured if the run has no limit."""
_BY_SIGNAL = 128
"""Bubblewrap adds this to the number of a signal."""

Ordered = Literal["stop", "lost", "timeout", "excess", "hung"]
Cause = Literal["exit"] | Ordered


@dataclass(frozen=True)
class RunCommand:
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    """The whole environment; the label and the report pipes are added to it."""
    label: str
    """`<experiment_id>/<attempt>/<fence>`."""
    log: Path
    timeout_s: float
    metric: str = ""
    """The metric to find in its output. Empty: none."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Resource limits by the names that launch.py knows."""
    reach: Reach | None = None
    """What it may touch. None: whatever its user may."""
    folder: Path | None = None
    """The folder whose size is limited. None: it is not measured."""
    ceilings: Ceilings | None = None
    """Limits of disk, processes and memory. None: no limit."""
    spare: Container[int] | None = None
    """See processes.kill_all."""
    apart: bool = False
    """Whether it gets its own process group, which Ctrl-C in our terminal does not reach."""
    tick_source: TickSource = "report"
    has_hidden: bool = False
    """Whether it gets one more pipe, for the numbers of hidden splits."""


@dataclass(frozen=True)
class RunTiming:
    """Intervals and timeouts of a run, in seconds."""

    poll_s: float = 0.5
    tail_s: float = 2.0
    term_grace_s: float = 10.0
    lease_patience_s: float = 60.0
    measure_s: float = 1.0
    count_s: float = 0.5
    printed_s: float = 1.0
    """Interval of ticks from the output, except at the first line in a bucket."""
    silence_s: float = 30.0
    """Silence after the whole result was printed, until the run is ended. See Silence."""


@dataclass(frozen=True)
class EndedCommand:
    """How a command ended; `cause` is `exit` if it ended by itself, else the order that ended it."""

    cause: Cause
    returncode: int | None
    log: str
    is_empty: bool
    """Whether every process of the attempt has ended."""
    excess: Excess | None = None
    """The limit that it exceeded, if that ended it."""
    time: TimeSpent | None = field(default=None, compare=False)
    """From the start of the command to its end, or to the beginning of the silence in which it hung."""
    printed: Printed = field(default_factory=Printed)
    """Metrics in the whole output, also in the part that the log leaves out."""
    hidden: bytes = field(default=b"", repr=False)
    """What it wrote to the pipe for the numbers of hidden splits."""


async def run_command(command: RunCommand, watcher: Watcher, pace: RunTiming) -> EndedCommand:
    """Run the command until it exits, or the lab, a limit or a lost lease ends it.

    A cancelled call kills the attempt. Raises OSError if the process, or its namespaces, cannot be started.
    """
    with contextlib.ExitStack() as resources:
        log = resources.enter_context(contextlib.closing(CappedLog(command.log)))
        output, output_end = open_pipe(resources)
        reports, reports_end = open_pipe(resources)
        answers_end, answers = open_pipe(resources)
        told, told_end = open_pipe(resources)
        hidden, hidden_end = open_pipe(resources)
        limits = ",".join(f"{name}={value}" for name, value in command.limits.items())
        reach = command.reach.packed() if command.reach else ""
        is_enclosed = command.reach is not None and command.reach.bwrap is not None
        told_fd = told_end.fileno() if is_enclosed else -1
        words = (str(os.getpid()), limits, reach, str(told_fd))
        apart: dict[str, Any] = {"process_group": 0} if command.apart else {}  # uvloop does not know the name
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(_LAUNCH), *words, *command.argv),
            cwd=command.cwd,
            env={
                **command.env,
                processes.ATTEMPT: command.label,
                "NIGHTJAR_REPORT_FD": inheritable_name(reports_end),
                "NIGHTJAR_ANSWER_FD": inheritable_name(answers_end),
                **({HIDDEN_FD: str(hidden_end.fileno())} if command.has_hidden else {}),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output_end,
            stderr=output_end,
            pass_fds=(
                *(reports_end.fileno(), answers_end.fileno()),
                *([told_fd] if is_enclosed else []),
                *([hidden_end.fileno()] if command.has_hidden else []),
            ),
            **apart,
        )
        for handed_over in (output_end, reports_end, answers_end, told_end, hidden_end):
            handed_over.close()
        for ours in (output, reports, answers, told, hidden):
            os.set_blocking(ours.fileno(), False)
        run = _Run(command, watcher, pace, process, log)
        try:
            await run.to_its_end(output.fileno(), reports.fileno(), answers.fileno())
        finally:
            is_empty = await run.bury()
            while data := read_now(output.fileno()):  # what the pipe still held
                run.keep(data)
        if run.order != "lost":
            await run.hand_over_tail()
        returncode, time = process.returncode, run.time
        if is_enclosed:
            returncode = _told(read_now(told.fileno()), returncode)
            if returncode is None and run.order is None:
                raise OSError(errno.EPERM, f"its namespaces were not made: {log.text().strip()[-500:]}")
        order, score = run.order or "exit", run.score.result()
        secret = read_now(hidden.fileno())
        return EndedCommand(order, returncode, log.text(), is_empty, run.excess, time, score, secret)


def _told(line: bytes, of_bubblewrap: int | None) -> int | None:
    """Exit code of a run in namespaces, from its first process or from bubblewrap; None: unknown."""
    with contextlib.suppress(ValueError):
        return int(line)
    if of_bubblewrap is not None and of_bubblewrap > _BY_SIGNAL:
        return _BY_SIGNAL - of_bubblewrap
    return of_bubblewrap if of_bubblewrap is not None and of_bubblewrap < 0 else None


class _Run:
    """One running process, and the order to end it, if there is one."""

    def __init__(
        self,
        command: RunCommand,
        watcher: Watcher,
        pace: RunTiming,
        process: asyncio.subprocess.Process,
        log: CappedLog,
    ) -> None:
        self.order: Ordered | None = None
        self.excess: Excess | None = None
        self.score = PrintedScore(command.metric)
        self._command = command
        self._watcher = watcher
        self._pace = pace
        self._process = process
        self._log = log
        self._printed = PrintedTicks(pace.printed_s) if command.tick_source == "stdout" else None
        self._begun = self._ended = asyncio.get_running_loop().time()
        self._cpu = CpuSeconds()
        self._silence = Silence(pace.silence_s, self._begun)
        self._exited = asyncio.ensure_future(process.wait())
        self._ordered = asyncio.Event()
        self._ordered_at = 0.0
        self._handed_over = 0
        self._extra_s = 0.0
        """Seconds that the lab has granted beyond its time limit."""
        self._is_cooperating = False
        """Whether the script waits for the answer to a tick, or was answered `stop` and may end by itself."""

    async def to_its_end(self, output: int, reports: int, answers: int) -> None:
        """Return when the process has exited, or `term_grace_s` after TERM."""
        helpers = [
            asyncio.ensure_future(helper)
            for helper in (
                self._keep_output(output),
                self._answer(reports, answers),
                self._take_printed(),
                self._ask(),
                self._show(),
                self._measure_files(),
                self._measure_processes(),
                self._wait_out_silence(),
            )
        ]
        try:
            await self._wait_for_end_or_order()
            if not self._exited.done():
                _log.info("ending %s: %s", self._command.label, self.order)
                if self.order != "excess":  # else it would go on meanwhile
                    processes.signal_all(self._command.label, signal.SIGTERM, spare={self._process.pid})
                    self._process.terminate()
                    await asyncio.wait({self._exited}, timeout=self._pace.term_grace_s)
        finally:
            now = asyncio.get_running_loop().time()
            self._ended = self._silence.since if self.order == "hung" else now
            await ended(*helpers)
            for outcome in await asyncio.gather(*helpers, return_exceptions=True):
                if isinstance(outcome, Exception):
                    _log.error("a helper of %s failed", self._command.label, exc_info=outcome)

    @property
    def time(self) -> TimeSpent:
        """Time that it took; complete once it is buried."""
        return TimeSpent(wall_seconds=self._ended - self._begun, cpu_seconds=self._cpu.total)

    def keep(self, data: bytes) -> None:
        """Write the next piece of the output to the log, and read it for the score."""
        self._log.write(data)
        self.score.feed(data)

    async def bury(self) -> bool:
        """Kill all processes of the attempt; blocks while it kills, so a cancellation cannot interrupt it."""
        self._cpu.look(self._processes())
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        is_empty = processes.kill_all(
            self._command.label, spare=self._command.spare, awaited=self._process.pid
        )
        await asyncio.wait({self._exited}, timeout=_REAP_S)
        return is_empty and self._exited.done()

    async def hand_over_tail(self) -> None:
        """Give the watcher the newest lines, if it does not have them yet."""
        if self._handed_over == self._log.written:
            return
        self._handed_over = self._log.written
        try:
            async with asyncio.timeout(self._pace.lease_patience_s):
                await self._watcher.tail(newest_lines(self._log.newest()))
        except Exception:  # noqa: BLE001 - a run does not fail because its log cannot be shown
            _log.warning("the log of %s could not be shown", self._command.label, exc_info=True)

    async def _wait_for_end_or_order(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._exited.done():
            deadline = until = self._begun + self._command.timeout_s + self._extra_s
            if self.order == "stop" and self._is_cooperating:
                until = min(deadline, self._ordered_at + self._pace.term_grace_s)
            elif self.order is not None:
                return
            if loop.time() >= until:
                self._give("timeout")
                return
            self._ordered.clear()
            news = asyncio.ensure_future(self._ordered.wait())
            try:
                await asyncio.wait(
                    {self._exited, news}, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                news.cancel()

    def _give(self, order: Ordered) -> None:
        """Keep the first order, unless a later one is `lost`."""
        if self.order is None:
            self._ordered_at = asyncio.get_running_loop().time()
        if self.order is None or order == "lost":
            self.order = order
        self._ordered.set()

    async def _keep_output(self, output: int) -> None:
        while True:
            await until_readable(output)
            data = read_now(output)
            if not data:
                return
            self.keep(data)
            self._end_silence()
            if self._printed is not None:
                self._printed.hear(data)

    async def _answer(self, reports: int, answers: int) -> None:
        """Pass each tick to the watcher, and the lab's answer to the script; one at a time."""
        waiting = b""
        while True:
            await until_readable(reports)
            data = read_now(reports)
            if not data:
                return
            self._end_silence()
            *lines, waiting = (waiting + data).split(b"\n")
            waiting = waiting[:_LONGEST_TICK]
            for line in lines:
                if (tick := parse_tick(line)) is not None:
                    if self._printed is None:
                        answer = await self._take(*tick)
                    else:  # ticks come from the output: reports are none
                        answer = "continue" if self.order is None else "stop"
                    with contextlib.suppress(OSError):  # the script has ended, or does not read its answers
                        os.write(answers, f"{answer}\n".encode())

    async def _take(self, metric: float, progress: float) -> str:
        """The answer to the script: continue, stop, or `extend` with its new budget."""
        self._is_cooperating = True
        order = await self._tell(metric, progress)
        if isinstance(order, Extension):
            self._extra_s = order.extra_s
        elif order != "continue":
            self._give(order)
        if self.order is not None:
            return "stop"
        self._is_cooperating = False
        return f"extend {order.budget_s!r}" if isinstance(order, Extension) else "continue"

    async def _take_printed(self) -> None:
        """Pass printed ticks to the watcher. The script hears no answer: it goes on, or is ended."""
        while self._printed is not None and self.order is None:
            order = await self._tell(*await self._printed.next())
            if order != "continue" and not isinstance(order, Extension):
                self._give(order)

    async def _tell(self, metric: float, progress: float) -> Order | Extension:
        try:
            return await self._watcher.tick(metric, progress)
        except Exception:  # noqa: BLE001 - the next tick replaces this one; `_ask` notices a lost lab
            _log.warning("a tick of %s could not be stored", self._command.label, exc_info=True)
            return "continue"

    async def _ask(self) -> None:
        """Renew the lease and take orders; after `lease_patience_s` without an answer the lease is lost."""
        loop = asyncio.get_running_loop()
        heard_at = loop.time()
        while True:
            await asyncio.sleep(self._pace.poll_s)
            order: Order = "continue"
            try:
                async with asyncio.timeout_at(heard_at + self._pace.lease_patience_s):
                    order = await self._watcher.poll()
                heard_at = loop.time()
            except Exception:  # noqa: BLE001 - a timeout, or Redis is down for a moment
                silence = loop.time() - heard_at
                _log.warning("%s got no answer for %.0f s", self._command.label, silence, exc_info=True)
                if silence >= self._pace.lease_patience_s:
                    order = "lost"
            if order != "continue":
                self._give(order)

    def _end_silence(self) -> None:
        self._silence.ends(asyncio.get_running_loop().time(), self._cpu.total)

    async def _wait_out_silence(self) -> None:
        """End a run that has printed its whole result and hangs."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._pace.count_s)
            if self.score.is_whole and self._silence.lasts(loop.time(), self._cpu.total):
                self._give("hung")
                return

    async def _show(self) -> None:
        while True:
            await asyncio.sleep(self._pace.tail_s)
            await self.hand_over_tail()

    async def _measure_files(self) -> None:
        """End the run when its files take too much of the disk."""
        folder, ceilings = self._command.folder, self._command.ceilings
        if folder is not None and ceilings is not None:
            most = ceilings.disk_bytes
            await self._measure(
                self._pace.measure_s, lambda: excess_of_disk(bytes_on_disk(folder, most), most)
            )

    async def _measure_processes(self) -> None:
        """Note the CPU seconds of its processes; end the run when they are too many or take too much memory."""
        ceilings = self._command.ceilings

        def excess() -> Excess | None:
            pids = self._processes()
            self._cpu.look(pids)
            return excess_of(pids, ceilings) if ceilings is not None else None

        await self._measure(self._pace.count_s, excess)

    def _processes(self) -> list[int]:
        """Its processes and the orphans that this process has adopted, up to one more than allowed."""
        spare, ceilings = self._command.spare, self._command.ceilings
        roots = [self._process.pid]
        if spare is not None:
            roots = [pid for pid in children_of(os.getpid()) if pid not in spare]
        return below(roots, ceilings.processes if ceilings is not None else _MOST_PROCESSES)

    async def _measure(self, pause_s: float, excess: Callable[[], Excess | None]) -> None:
        """Measure until a limit is exceeded, for at most a tenth of the time."""
        loop = asyncio.get_running_loop()
        pause = pause_s
        while True:
            await asyncio.sleep(pause)
            begun = loop.time()
            if (found := await asyncio.to_thread(excess)) is not None:
                self.excess = found
                self._give("excess")
                return
            pause = max(pause_s, 9 * (loop.time() - begun))
