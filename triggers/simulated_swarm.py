"""A simulated swarm: its workers join, run, die and are replaced; then what the server has is checked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psutil

from functions.runs.rules.ticks import MOST_PROGRESS
from functions.swarm.rules.simulating import LATE_BY, Faults, Hidden, deaths
from functions.trust.rules.audit_tags import ShownRun, lost, miscounted
from state.errors import Unavailable
from triggers.simulated_wire import PATIENCE_S, Book, Refused, Wire
from triggers.simulated_worker import Fortune, Proposer, SimulatedPace, Worker

BASE_S, EXTEND_S, SILENT_S = 300.0, 120.0, 300.0
"""Simulated seconds of a run, of its extension, and of silence beyond it after which it is lost.

Real swarms wait 600 s. A simulation would spend most of its time on that.
"""
GRACE_S = 60.0
"""Seconds beyond that for which a private lab may take to count a run as lost."""
LEAST_RATE = 20.0
"""Requests a second of a server that is fast enough: workers join one after another."""
LOOK_S = 0.5


@dataclass(frozen=True)
class Plan:
    workers: int
    rounds: int
    speed: float
    faults: Faults
    name: str
    """Of the simulation: its workers' names begin with it."""
    seed: str
    is_private: bool
    """Whether the lab is ours: then its clock runs as fast as the simulation."""
    enroll_token: str | None = None
    operator: str | None = None
    """The token or key with which records are read and dimensions proposed; None: without one."""
    tag: str = "swarm"
    hidden: Sequence[Hidden] = ()
    """Constants that its dimensions leave out; a scripted author proposes them."""

    @property
    def policy(self) -> Mapping[str, float]:
        """These times at the speed of the simulation, for a private lab; a budget is in whole seconds."""
        return {
            "budgets.base_s": max(1, round(BASE_S / self.speed)),
            "budgets.extend_s": max(EXTEND_S / self.speed, 0.5),
            "stale_after_s": max(SILENT_S / self.speed, 2.0),
        }

    @property
    def pace(self) -> SimulatedPace:
        if not self.is_private:
            return SimulatedPace(self.speed, budget_s=1.0, lost_after_s=BASE_S / self.speed)
        base_s, silent_s = self.policy["budgets.base_s"], self.policy["stale_after_s"]
        return SimulatedPace(self.speed, budget_s=BASE_S / base_s, lost_after_s=base_s + silent_s)

    def most_s(self, budget: float) -> float:
        """Seconds for which workers may be at work, given a server's budget: as long as if each run took longest.

        In a private lab dead workers are lost then, and others do what was theirs.
        """
        pace = self.pace
        run_s = pace.real_s(budget) * MOST_PROGRESS + LATE_BY[1] * pace.lost_after_s
        work_s = BASE_S / self.speed + self.rounds * run_s
        lost_s = pace.lost_after_s + GRACE_S
        return PATIENCE_S + self.workers / LEAST_RATE + 2 * (work_s + lost_s if self.is_private else work_s)


@dataclass(frozen=True)
class UsedResources:
    """CPU seconds and resident bytes of a process since its start."""

    cpu_s: float
    memory: int


def used_by(pids: Mapping[str, int]) -> Iterator[tuple[str, UsedResources]]:
    """By those of these processes that run."""
    for name, pid in pids.items():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            times = process.cpu_times()
            yield name, UsedResources(times.user + times.system, process.memory_info().rss)


@dataclass
class Found:
    """The server's report of the simulation, and the differences from our record."""

    stats: Mapping[str, Any] = field(default_factory=dict)
    sigma: float | None = None
    """Noise of its gains, once two runs of one config have ended."""
    claims: list[dict[str, Any]] = field(default_factory=list)
    """The hypotheses of the swarm, as the server lists them."""
    lost: list[str] = field(default_factory=list)
    double: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    """What could not be checked, and why."""
    seconds: float = 0.0
    """From the first request of a worker to the last."""
    fortunes: Sequence[Fortune] = ()
    """Outcome of each proposed dimension."""
    is_interrupted: bool = False
    """Asked to stop before all runs were over."""
    unanswered: int = 0
    """Requests without an answer when workers were ended early. Their effect is not known."""
    used: Mapping[str, UsedResources] = field(default_factory=dict)
    """By our process, and by those of a private lab, until this was checked."""

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.double or self.violations)


class Swarm:
    """The workers of one simulation."""

    def __init__(
        self, plan: Plan, wire: Wire, stop: asyncio.Event, pids: Callable[[], Mapping[str, int]]
    ) -> None:
        self.plan = plan
        self.wire = wire
        self._stop = stop
        """Ends the workers early."""
        self._pids = pids
        """Processes of a private lab by name."""
        self.book = Book()
        self.phase = "joining"
        self._chance = Random(plan.seed)
        self._joined = 0

    async def run(self) -> Found:
        """Simulate, and check. Raises Refused: the first worker may not join. Unavailable: no server."""
        before = await self.wire.ask("health", "GET", "/health")
        begun = time.monotonic()
        workers = [self._worker(f"{self.plan.name}-{n:04}") for n in range(1, self.plan.workers + 1)]
        await workers[0].join(self.plan.enroll_token)
        if self.plan.is_private:
            policy = {"tag": self.plan.tag, "policy": dict(self.plan.policy)}
            await self.wire.ask(
                "set_policy", "POST", "/api/search/set-policy", policy, token=self.plan.operator
            )
        synced = await workers[0].ask("sync", "GET", f"/sync/{workers[0].name}")
        found = Found()
        async with self._proposing() as proposer:
            await self._until_over(self._all_work(workers), self.plan.most_s(synced["budget_seconds"]), found)
        found.seconds = time.monotonic() - begun
        found.used = dict(used_by({**self._pids(), "simulate": os.getpid()}))
        self.phase = "checking"
        await self._check(before, found)
        if proposer is not None:
            found.fortunes = [*proposer.fortunes.values()]
            wrong = [each.hidden.name for each in found.fortunes if each.wrongly]
            self.book.faults += [f"{name}: a proposal counted while the search improved" for name in wrong]
        return found

    async def _until_over(self, work: Coroutine[Any, Any, None], most_s: float, found: Found) -> None:
        """Let workers work to their end. Asked to stop, or after so long, end them between two requests."""
        working = asyncio.create_task(work, name="workers")
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait([working, stopping], timeout=most_s, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            found.is_interrupted = stopping.done()
            if not found.is_interrupted:
                text = f"workers were ended after {most_s:.0f} s, in which {self.plan.rounds} rounds should be over"
                self.book.faults.append(f"{text}: the server is too slow for so many at this speed")
            self.phase = f"interrupted while {self.phase}"
            async with self.wire.held() as found.unanswered:
                working.cancel()
                await asyncio.wait([working])
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.wait([working, stopping])

    async def _all_work(self, workers: Sequence[Worker]) -> None:
        await self._work(workers, joined=1)
        if self.plan.is_private:
            await self._until_lost()
            await self._replace()
            await self._until_lost()

    @asynccontextmanager
    async def _proposing(self) -> AsyncIterator[Proposer | None]:
        """The author at work, where there is one; what goes wrong is noted."""
        plan = self.plan
        if not plan.hidden:
            yield None
            return
        proposer = Proposer(plan.hidden, self.wire, self.book, plan.tag, plan.operator)
        working = asyncio.create_task(proposer.work(), name="proposer")
        try:
            yield proposer
        finally:
            working.cancel()
            await asyncio.wait([working])
        if not working.cancelled() and (problem := working.exception()) is not None:
            self.book.faults.append(f"the author of dimensions: {problem}")
        else:
            await proposer.look()

    def _worker(self, name: str) -> Worker:
        plan = self.plan
        self._joined += 1
        return Worker(name, self.wire, self.book, plan.pace, plan.faults, plan.seed, plan.hidden)

    async def _work(self, workers: Sequence[Worker], joined: int) -> None:
        """Let them join, those that have not, and then begin one after another within the time of a run."""
        await asyncio.gather(*(worker.join(self.plan.enroll_token) for worker in workers[joined:]))
        self.phase = "running"
        dying = deaths(self.plan.faults, len(workers), self.plan.rounds, self._chance)

        async def at_work(nth: int, worker: Worker) -> None:
            await self._in_turn(nth, len(workers))
            await worker.work(self.plan.rounds, dying.get(nth))

        await asyncio.gather(*(at_work(nth, worker) for nth, worker in enumerate(workers)))

    async def _in_turn(self, nth: int, of: int) -> None:
        """Wait, so that so many begin one after another within the time of a run."""
        await asyncio.sleep(BASE_S / self.plan.speed * nth / of)

    async def _until_lost(self) -> None:
        """Wait until the lab has no run that goes on: those of dead workers are lost then."""
        self.phase = "waiting until the runs of dead workers are lost"
        clock = asyncio.get_running_loop().time
        give_up = clock() + self.plan.pace.lost_after_s + GRACE_S
        while runs := await self.wire.ask("active", "GET", "/runs/active"):
            if clock() > give_up:
                self.book.faults.append(f"{len(runs)} runs go on, although no worker does")
                return
            await asyncio.sleep(LOOK_S)

    async def _replace(self) -> None:
        """A new worker for each dead one does what that one still owed."""
        self.phase = "replacing dead workers"
        owed = dict(self.book.rounds_left)

        async def replaced(nth: int, name: str, rounds: int) -> None:
            await self._in_turn(nth, len(owed))
            worker = self._worker(f"{name}-again")
            await worker.join(self.plan.enroll_token)
            await worker.work(rounds)

        await asyncio.gather(
            *(replaced(nth, name, rounds) for nth, (name, rounds) in enumerate(owed.items()))
        )

    # -- what the server has

    async def _check(self, before: Mapping[str, Any], found: Found) -> None:
        await self._check_records(found)
        await self._check_counts(before, found)
        stats = await self._asked(found, "the counts of /runs/stats", "GET", "/runs/stats")
        found.stats = stats or {}
        newest = {"tag": self.plan.tag, "limit": 1}
        runs = await self._asked(found, "the noise", "POST", "/api/report/runs", newest)
        found.sigma = runs["sigma"] if runs is not None else None
        archived = {"archived": True}
        claims = await self._asked(found, "the hypotheses", "POST", "/api/hypothesis/list", archived)
        found.claims = list(claims["hypotheses"]) if claims is not None else []
        audit = await self._asked(found, "the lab's audit", "POST", "/api/lab/audit", {})
        found.violations = list(audit["violations"]) if audit is not None else []

    async def _check_records(self, found: Found) -> None:
        """Compare each acknowledged result with its record."""
        names = list(self.book.acknowledged)
        if not names:
            return
        first = await self._asked(found, "the records of the runs", "GET", f"/api/experiment/{names[0]}")
        if first is None:
            return
        stored: dict[str, ShownRun] = {}

        async def read(name: str) -> None:
            try:
                answer = await self._read("GET", f"/api/experiment/{name}")
            except Refused as problem:
                if problem.status != 404:
                    raise
                return
            e = answer["experiment"]
            stored[name] = ShownRun(e["status"], e["val_bpb"])

        await asyncio.gather(*map(read, names))
        found.lost += lost(self.book.acknowledged, stored)

    async def _check_counts(self, before: Mapping[str, Any], found: Found) -> None:
        """Compare the server's counters with ours; that of all only where no other worker was at work."""
        if found.unanswered:
            found.unchecked.append(f"the counts of experiments ({found.unanswered} requests had no answer)")
            return
        after = await self.wire.ask("health", "GET", "/health")
        leaders = await self._asked(found, "the leaderboard", "GET", "/leaderboard") or []
        by_worker = {row["worker_id"]: row["experiment_count"] for row in leaders}
        are_alone = before["active_workers"] == 0 and after["active_workers"] <= self._joined
        if not are_alone:
            found.unchecked.append("the count of all experiments (others are at work, too)")
        count = after["experiments"] - before["experiments"] if are_alone else None
        for difference, text in miscounted(self.book.acknowledged, count, by_worker):
            (found.double if difference > 0 else found.lost).append(text)

    async def _asked(self, found: Found, what: str, method: str, path: str, body: Any = None) -> Any:
        """The answer to a reader; None, and noted, if it may not read this or there is none."""
        try:
            return await self._read(method, path, body)
        except Refused as problem:
            if problem.status not in (401, 403):
                raise
            found.unchecked.append(f"{what} (NIGHTJAR_TOKEN has to be a token that may)")
        except Unavailable as problem:
            found.unchecked.append(f"{what} ({problem.detail})")
        return None

    async def _read(self, method: str, path: str, body: Any = None) -> Any:
        return await self.wire.ask("check", method, path, body, token=self.plan.operator, is_kept=True)


async def watched(swarm: Swarm, every_s: float, show: Callable[[Swarm], None]) -> Found:
    """Run it, and show how far it is."""
    running = asyncio.create_task(swarm.run(), name="simulation")
    try:
        while not (await asyncio.wait([running], timeout=every_s))[0]:
            show(swarm)
        return running.result()
    finally:
        running.cancel()
        await asyncio.wait([running])
