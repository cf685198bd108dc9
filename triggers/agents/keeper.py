"""Keeps one agent at work: starts its process, watches it, ends it, and starts it again until its night is over.

Nothing is started while a usage limit lasts, nor while the agent would only wait for an experiment of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from functions.formats.agent_output import LONGEST_LINE, Meter, Usage, UsageLimit, usage_limit
from functions.formats.metrics_block import without_controls
from functions.kernel.process.running import started
from functions.search.rules.suggestions import short
from state.errors import NightjarError
from state.own_processes import tethered
from triggers.agents.minder import GRACE_S, KILL_S
from triggers.agents.place import AgentFolder, AgentLog
from triggers.cli.lab_http import AWAY

# -- When an agent's process is started, ended and restarted, and when the night is over.

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 600.0
FIRST_LIMIT_S, LONGEST_LIMIT_S = 60.0, 3600.0
"""Pauses after a usage limit without a known end."""


@dataclass(frozen=True)
class Patience:
    """Limits on an agent's inactivity."""

    silent_s: float
    """Seconds without a line printed; 0: any time."""
    idle_s: float
    """Seconds with no experiment of its own open or finished."""
    starts: int
    """Starts in a row in which it works on no experiment."""


def end_of_night(brief: Mapping[str, Any]) -> str | None:
    """Why an agent with this brief has nothing more to do; None: it has."""
    if brief["paused"]:
        return f"{brief['tag']} is paused"
    spent = [
        name.replace("_", " ")
        for name, account in (brief["budget"] or {}).items()
        if account["left"] is not None and account["left"] <= 0 and account["reserved"] <= 0
    ]
    if spent and not brief["open_experiments"]:
        return f"{brief['tag']} has no {' and no '.join(spent)} left"
    return None


def overdue(silent_s: float, idle_s: float, patience: Patience) -> str | None:
    """Why a process has to be restarted; None: it need not be."""
    if patience.silent_s and silent_s > patience.silent_s:
        return f"it has printed nothing for {silent_s:.0f} s"
    if idle_s > patience.idle_s:
        return f"it has worked on no experiment for {idle_s:.0f} s"
    return None


def pause_before(useless_starts: int) -> float:
    """Seconds before the next start, after so many useless starts in a row."""
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(useless_starts, 20)))


def pause_after_limit(limits: int, left_s: float | None) -> float:
    """Seconds before the next start, after so many usage limits in a row; the last one ends in `left_s` seconds.

    The first time, the announced end is used. After that the pause doubles each time, up to an hour.
    """
    pause_s = min(LONGEST_LIMIT_S, FIRST_LIMIT_S * 2.0 ** min(limits - 1, 20))
    if left_s is None:
        return pause_s
    return left_s if limits == 1 else max(left_s, pause_s)


def own_experiments(brief: Mapping[str, Any], agent: str, unnamed: Collection[str] = ()) -> dict[str, str]:
    """The status of each experiment in a brief that has the agent's name, or is one of its `unnamed` ones."""
    shown = [*brief["last_results"], *brief["open_experiments"]]
    return {
        e["experiment_id"]: e["status"] for e in shown if e["agent"] == agent or e["experiment_id"] in unnamed
    }


def awaited(brief: Mapping[str, Any], own: Mapping[str, str], before: Collection[str]) -> list[str]:
    """Open experiments of an agent that has nothing else to do; empty if it has.

    It has something to do if an experiment that was open `before` has ended, if it trains one itself, or if it holds
    an open selection.
    """
    still_open = {e["experiment_id"] for e in brief["open_experiments"]} & own.keys()
    is_busy = brief["open_selections"] or "registered" in {own[name] for name in still_open}
    return [] if is_busy or set(before) - still_open else sorted(still_open)


# -- One agent at work.

LOOK_S = 5.0
"""Seconds between two requests for an agent's brief."""
PROGRAM, NAME, TAG = "{program}", "{name}", "{tag}"
"""Placeholders in the command for the file with the agent's task, its name and its tag."""
_FILLED = re.compile("|".join(map(re.escape, (PROGRAM, NAME, TAG))))
CHUNK = 65536
DRAIN_S = 5.0
"""Seconds to read the rest of the output after a process has ended."""
LAST_LINES, LAST_LINE = 60, 16384
"""Last lines, and bytes of a line, that may say why an agent's process ended."""
NOTHING = Usage()

Brief = Mapping[str, Any]
Ask = Callable[[str, Mapping[str, Any]], Brief]
"""Calls a function of the lab by its path."""


@dataclass(frozen=True)
class AgentOrders:
    """Settings that all agents of a night share."""

    command: Sequence[str]
    url: str
    launcher: str
    environment: Mapping[str, str]
    patience: Patience


@dataclass
class AgentProgress:
    """State and counters of an agent."""

    state: str = "starting"
    starts: int = 0
    experiments: set[str] = field(default_factory=set)
    limits: int = 0
    """Number of usage limits that it has hit."""
    limit: Mapping[str, Any] | None = None
    """The usage limit that it waits for, as it is announced."""
    before: Usage = NOTHING
    """Usage of its former processes."""
    meter: Meter = field(default_factory=Meter)

    @property
    def usage(self) -> Usage:
        return self.before + self.meter.usage


class _NightOver(Exception):
    """The tag has nothing more to do for an agent."""


class KeptAgent:
    """One agent of the night."""

    def __init__(
        self,
        place: AgentFolder,
        orders: AgentOrders,
        token: str | None,
        ask: Ask,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.place, self.orders, self.standing = place, orders, AgentProgress()
        self._token, self._ask, self._say = token, ask, say
        self._clock, self._sleep = clock, sleep
        self._log = AgentLog(place.log)
        self._who = {"tag": place.tag, "agent": place.name}
        self._others: set[str] = set()
        """Open experiments without an agent's name at the start of its process."""
        self._unnamed: set[str] = set()
        """Experiments without a name that were entered while its processes ran. They may be its own."""
        self._seen: dict[str, str] = {}
        self._open: set[str] = set()
        """Its own open experiments at the last check."""
        self._sightings = 0
        """Number of observed changes of its own experiments."""
        self._lines: deque[bytes] = deque(maxlen=LAST_LINES)
        self._printed_at = self._worked_at = time.monotonic()

    async def keep(self) -> str:
        """Keep the agent at work; answers why its night is over."""
        useless = limits = 0
        pause_s, told = 0.0, "This is your first start."
        try:
            while True:
                brief = await self._rest(pause_s)
                known = self._sightings
                why = await self._run(brief, told)
                worked = self._sightings != known
                useless, limits = (0, 0) if worked else (useless, limits)
                now = datetime.fromtimestamp(self._clock()).astimezone()
                if (limit := usage_limit(self._last_lines(), now)) is not None:
                    limits += 1
                    pause_s = self._limited(limit, limits, now)
                    why = f"{why}, at a usage limit ({limit.said})"
                else:
                    limits = 0
                    useless += not worked
                    pause_s = pause_before(useless)
                    if useless >= self.orders.patience.starts:
                        self._note(why)
                        last = short(next(reversed(self._last_lines()), "nothing"), 160)
                        return (
                            f"given up: {useless} starts in a row came to nothing: {why}, and the last line is:"
                            f" {last}; its log is {self.place.log}"
                        )
                told = f"You were started again, because your process before this one was ended: {why}."
                at = f" at {now + timedelta(seconds=pause_s):%Y-%m-%d %H:%M:%S}" if limit else ""
                self._note(f"{why}; starting it again{at}")
        except _NightOver as over:
            return str(over)
        finally:
            self.standing.state, self.standing.limit = "ended", None
            await self._announce()
            self._log.close()

    def _limited(self, limit: UsageLimit, limits: int, now: datetime) -> float:
        """Record a usage limit, the last of `limits` in a row; answers the seconds to wait."""
        pause_s = pause_after_limit(limits, (limit.until - now).total_seconds() if limit.until else None)
        since = now.timestamp()
        self.standing.state, self.standing.limits = "limited", self.standing.limits + 1
        self.standing.limit = {"since": int(since), "until": int(since + pause_s), "said": limit.said}
        return pause_s

    async def _rest(self, pause_s: float) -> Brief:
        """Wait until the pause is over and there is something to do; answers the brief of that moment."""
        until, noted = self._clock() + pause_s, list[str]()
        if pause_s and self.standing.limit is None:
            self.standing.state = "waiting"
        while True:
            brief = await self._brief()
            if (left := until - self._clock()) <= 0 and brief is not None:
                waits_for = awaited(brief, self._seen, self._open)
                if not waits_for:
                    return brief
                self.standing.state, self.standing.limit = "waiting", None
                if waits_for != noted:
                    self._note(f"is started again after {', '.join(waits_for)}")
                    noted = waits_for
            await self._sleep(min(left, LOOK_S) if left > 0 else LOOK_S)

    async def _announce(self) -> None:
        """Report the agent's state to the lab; a failure is ignored."""
        standing, usage = self.standing, self.standing.usage
        told = {
            **self._who,
            "state": standing.state,
            "starts": standing.starts,
            "experiments": len(standing.experiments),
            "tokens": usage.tokens,
            "cost_usd": usage.cost_usd,
            "limit": standing.limit,
        }
        with contextlib.suppress(NightjarError):
            await asyncio.to_thread(self._ask, "agent/announce", told)

    async def _run(self, brief: Brief, told: str) -> str:
        """One process, from its start to its end; answers why it ended."""
        program = self.place.hand_over(
            self.orders.url, self.orders.launcher, self._token, brief=brief, told=told
        )
        takes_file = any(PROGRAM in word for word in self.orders.command)
        own = {PROGRAM: str(program), NAME: self.place.name, TAG: self.place.tag}
        command = [_FILLED.sub(lambda found: own[found[0]], word) for word in self.orders.command]
        self.standing.starts += 1
        self._note(f"start {self.standing.starts}: {shlex.join(self.orders.command)}", aloud=False)
        self._printed_at = self._worked_at = time.monotonic()
        self._lines.clear()
        self._others = {e["experiment_id"] for e in brief["open_experiments"]} - self._seen.keys()
        with program.open("rb") as text:
            process = await asyncio.create_subprocess_exec(
                *tethered(started("triggers.agents.minder", *command)),
                stdin=DEVNULL if takes_file else text,
                stdout=PIPE,
                stderr=STDOUT,
                cwd=self.place.clone,
                env={
                    **self.orders.environment,
                    "NIGHTJAR_URL": self.orders.url,
                    "NIGHTJAR_TAG": self.place.tag,
                    "NIGHTJAR_NAME": self.place.name,
                    **({"NIGHTJAR_TOKEN": self._token} if self._token is not None else {}),
                },
                process_group=0,
            )
        self.standing.state, self.standing.limit = "working", None
        reading = asyncio.create_task(self._read(process))
        try:
            await self._announce()
            return await self._watch(process)
        finally:
            await _end(process)
            done, _ = await asyncio.wait([reading], timeout=DRAIN_S)
            reading.cancel()
            for one in done:
                one.result()  # such as a full disk, which leaves no log
            self.standing.before, self.standing.meter = self.standing.usage, Meter()

    async def _watch(self, process: Process) -> str:
        """Watch the process until it has ended or must be ended; answers why."""
        exited = asyncio.create_task(process.wait())
        look_s = min(LOOK_S, self.orders.patience.idle_s / 2)
        while not (await asyncio.wait([exited], timeout=look_s))[0]:
            await self._see()
            now = time.monotonic()
            why = overdue(now - self._printed_at, now - self._worked_at, self.orders.patience)
            if why is not None:
                return why
        await self._see()  # a short one may have come and gone between two looks
        return f"it ended with exit code {exited.result()}"

    async def _see(self) -> None:
        """Note the open experiments of its process, if the lab answers."""
        brief = await self._brief()
        if brief is None:
            self._worked_at = time.monotonic()
            return
        self._open = {e["experiment_id"] for e in brief["open_experiments"]} & self._seen.keys()

    async def _brief(self) -> Brief | None:
        """The agent's brief; None: no lab answers. Notes its own experiments. Raises _NightOver."""
        try:
            await self._announce()
            brief = await asyncio.to_thread(self._ask, "report/brief", self._who)
        except AWAY:
            return None
        if self.standing.state == "working":
            is_new = {e["experiment_id"] for e in brief["open_experiments"] if e["agent"] is None}
            self._unnamed |= is_new - self._others
        mine = own_experiments(brief, self.place.name, self._unnamed)
        if mine != self._seen:
            self._sightings += 1
        if mine != self._seen or mine.keys() & {e["experiment_id"] for e in brief["open_experiments"]}:
            self._worked_at = time.monotonic()
        self._seen = mine
        self.standing.experiments |= own_experiments(brief, self.place.name).keys()
        if (over := end_of_night(brief)) is not None:
            raise _NightOver(over)
        return brief

    async def _read(self, process: Process) -> None:
        """Copy its output to its log, and read the usage from it."""
        assert process.stdout is not None
        line = b""
        while chunk := await process.stdout.read(CHUNK):
            self._printed_at = time.monotonic()
            self._log.write(chunk)
            *whole, rest = (line + chunk).split(b"\n")
            for one in whole:
                self._heard(one)
            line = rest if len(rest) <= LONGEST_LINE else b""
        self._heard(line)

    def _heard(self, line: bytes) -> None:
        self.standing.meter.read(line)
        line = line.strip().rpartition(b"\r")[2]  # what a spinner has left
        if line and len(line) <= LAST_LINE:
            self._lines.append(line)

    def _last_lines(self) -> list[str]:
        return [without_controls(line.decode(errors="replace")) for line in self._lines]

    def _note(self, text: str, *, aloud: bool = True) -> None:
        self._log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n".encode())
        if aloud:
            self._say(f"{self.place.name}: {text}")


async def _end(process: Process) -> None:
    """End the process and all that it has started, even if we are interrupted."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), GRACE_S + KILL_S + 5)
    if process.returncode is None:
        process.kill()
        await process.wait()
