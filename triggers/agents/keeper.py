"""Keeps one agent at work: starts its process, watches it, ends it, and starts it again until its night is over."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from functions.formats.agent_output import LONGEST_LINE, Meter, Usage
from functions.process.own_modules import started
from functions.rules.agents import Patience, end_of_night, overdue, own_experiments, pause_before
from state.errors import Exhausted, NightjarError, TooManyRequests, Unavailable
from state.tether import tethered
from triggers.agents.minder import GRACE_S, KILL_S
from triggers.agents.place import Log, Place

LOOK_S = 5.0
"""Seconds between two looks at what the lab knows of an agent."""
PROGRAM, NAME, TAG = "{program}", "{name}", "{tag}"
"""What a word of the command may have for the file with the agent's task, its name and its tag."""
_FILLED = re.compile("|".join(map(re.escape, (PROGRAM, NAME, TAG))))
CHUNK = 65536
DRAIN_S = 5.0
"""Seconds for the rest of what a process has printed, once it has ended."""
NOTHING = Usage()

Brief = Mapping[str, Any]
Ask = Callable[[str, Mapping[str, Any]], Brief]
"""Calls a function of the lab by its path."""


@dataclass(frozen=True)
class Orders:
    """What is the same for all agents of a night."""

    command: Sequence[str]
    url: str
    launcher: str
    environment: Mapping[str, str]
    patience: Patience


@dataclass
class Standing:
    """How an agent stands."""

    state: str = "starting"
    starts: int = 0
    experiments: set[str] = field(default_factory=set)
    before: Usage = NOTHING
    """What its former processes have used."""
    meter: Meter = field(default_factory=Meter)

    @property
    def usage(self) -> Usage:
        return self.before + self.meter.usage


class Agent:
    """One agent of the night."""

    def __init__(
        self,
        place: Place,
        orders: Orders,
        token: str | None,
        ask: Ask,
        say: Callable[[str], None],
    ) -> None:
        self.place, self.orders, self.standing = place, orders, Standing()
        self._token, self._ask, self._say = token, ask, say
        self._log = Log(place.log)
        self._who = {"tag": place.tag, "agent": place.name}
        self._seen: dict[str, str] = {}
        self._sightings = 0
        """How often it was seen to work on an experiment."""
        self._printed_at = self._worked_at = time.monotonic()

    async def keep(self) -> str:
        """Keep it at work; answers why its night is over."""
        useless, told = 0, "This is your first start."
        try:
            while True:
                if (brief := await self._brief()) is not None and (over := end_of_night(brief)) is not None:
                    return over
                if useless >= self.orders.patience.starts:
                    return f"given up: {useless} starts in a row came to nothing; its log is {self.place.log}"
                if self.standing.starts:
                    await self._wait(pause_before(useless))
                known = self._sightings
                ended = await self._run(brief or {}, told)
                if ended.over is not None:
                    return ended.over
                useless = useless + 1 if self._sightings == known else 0
                told = f"You were started again, because your process before this one was ended: {ended.why}."
                self._note(f"{ended.why}; starting it again")
        finally:
            self.standing.state = "ended"
            await self._announce()
            self._log.close()

    async def _wait(self, pause_s: float) -> None:
        """Wait before the next start, and show that we do."""
        self.standing.state = "waiting"
        until = time.monotonic() + pause_s
        while (left := until - time.monotonic()) > 0:
            await self._announce()
            await asyncio.sleep(min(left, LOOK_S))

    async def _announce(self) -> None:
        """Show in the lab how it is, if the lab takes it: nothing depends on that."""
        standing, usage = self.standing, self.standing.usage
        told = {
            **self._who,
            "state": standing.state,
            "starts": standing.starts,
            "experiments": len(standing.experiments),
            "tokens": usage.tokens,
            "cost_usd": usage.cost_usd,
        }
        with contextlib.suppress(NightjarError):
            await asyncio.to_thread(self._ask, "agent/announce", told)

    async def _run(self, brief: Brief, told: str) -> Ended:
        """One process, from its start to its end."""
        program = self.place.hand_over(
            self.orders.url, self.orders.launcher, self._token, brief=brief, told=told
        )
        takes_file = any(PROGRAM in word for word in self.orders.command)
        own = {PROGRAM: str(program), NAME: self.place.name, TAG: self.place.tag}
        command = [_FILLED.sub(lambda found: own[found[0]], word) for word in self.orders.command]
        self.standing.starts += 1
        self._note(f"start {self.standing.starts}: {shlex.join(self.orders.command)}", aloud=False)
        self._printed_at = self._worked_at = time.monotonic()
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
        self.standing.state = "working"
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

    async def _watch(self, process: Process) -> Ended:
        """Look at it until it has ended, or has to be."""
        exited = asyncio.create_task(process.wait())
        look_s = min(LOOK_S, self.orders.patience.idle_s / 2)
        while not (await asyncio.wait([exited], timeout=look_s))[0]:
            brief = await self._brief()
            now = time.monotonic()
            if brief is None:  # nothing is known of what it does
                self._worked_at = now
            elif (over := end_of_night(brief)) is not None:
                return Ended(over, over=over)
            why = overdue(now - self._printed_at, now - self._worked_at, self.orders.patience)
            if why is not None:
                return Ended(why)
        await self._brief()  # a short one may have come and gone between two looks
        return Ended(f"it ended with exit code {exited.result()}")

    async def _brief(self) -> Brief | None:
        """What the lab tells the agent now, noted where it shows that the agent works; None where no lab answers."""
        try:
            await self._announce()
            brief = await asyncio.to_thread(self._ask, "report/brief", self._who)
        except (Exhausted, TooManyRequests, Unavailable):
            return None
        mine = own_experiments(brief, self.place.name)
        if brief["open_experiments"] or mine != self._seen:
            self._worked_at = time.monotonic()
            self._sightings += 1
        self._seen = mine
        self.standing.experiments |= mine.keys()
        return brief

    async def _read(self, process: Process) -> None:
        """Pass on what it prints to its log, and count what it says that it used."""
        assert process.stdout is not None
        line = b""
        while chunk := await process.stdout.read(CHUNK):
            self._printed_at = time.monotonic()
            self._log.write(chunk)
            *whole, rest = (line + chunk).split(b"\n")
            for one in whole:
                self.standing.meter.read(one)
            line = rest if len(rest) <= LONGEST_LINE else b""
        self.standing.meter.read(line)

    def _note(self, text: str, *, aloud: bool = True) -> None:
        self._log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n".encode())
        if aloud:
            self._say(f"{self.place.name}: {text}")


@dataclass(frozen=True)
class Ended:
    """Why a process is at its end; `over` where its agent's night is."""

    why: str
    over: str | None = None


async def _end(process: Process) -> None:
    """End it with all that it has started, however often we are interrupted meanwhile."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), GRACE_S + KILL_S + 5)
    if process.returncode is None:
        process.kill()
        await process.wait()
