"""The loop of a swarm's worker: sync, ask for a config, run it, hand the result in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from functions.lanes import Halted, TrainingResult
from functions.process.joined import Baseline
from state.errors import Unavailable
from workers.swarm.leaving import Leaving
from workers.swarm.project import Project
from workers.swarm.results import Results
from workers.swarm.runs import Runs, job_of, not_run_of, result_of, seed_of
from workers.swarm.server import Assignment, Server, Varied
from workers.swarm.spec_pipeline import SpecPipeline
from workers.swarm.ticks import Ticks

PROGRAM = "program.md"
LAST_PAUSES_S = (1.0, 2.0, 4.0)
"""Between the last tries to hand a result in, when the owner leaves."""


class OtherBudget(Exception):
    """The swarm's runs take other seconds than the baseline's: what they score cannot be compared with it."""

    def __init__(self, budget_s: float) -> None:
        super().__init__(budget_s)
        self.budget_s = budget_s
        """Seconds of a run."""


@dataclass(frozen=True)
class Worker:
    """Who works, with what it compares its results."""

    worker_id: str
    baseline: Baseline
    folder: Path
    """Where its owner finds the swarm's program."""


class Working:
    """A worker that has joined."""

    def __init__(
        self,
        server: Server,
        project: Project,
        runs: Runs,
        results: Results,
        leaving: Leaving,
        say: Callable[[str], None],
        check: Callable[[Sequence[Varied]], None],
        ahead: SpecPipeline | None = None,
    ) -> None:
        self._server = server
        self._project = project
        self._runs = runs
        self._results = results
        self._leaving = leaving
        self._say = say
        self._check = check
        self._ahead = ahead
        self._count = 0

    async def go_on(self, who: Worker, most: int | None) -> None:
        """Run assignment after assignment until the owner wants to leave, or `most` are run in all.

        Raises:
            OtherBudget: another baseline is needed. NightjarError: the swarm refuses us.
        """
        while self._count != most and await self._runs.ready():
            given = await self._leaving.patiently(lambda: self._next(who))
            if given is None:
                break
            self._count += 1
            await self._run(given, who)
        await self._hand_in_last()

    async def _next(self, who: Worker) -> Assignment:
        """Hand in what waits, then ask for an assignment: the server knows of no second one of ours."""
        await self._results.hand_in(self._server)
        synced = await self._server.sync()
        program = synced.program_md
        if self._ahead is not None:
            program = await self._ahead.program(program)
        keep_program(who.folder, program, self._say)
        self._check(synced.dimensions)
        told_s, measured_s = synced.budget_seconds, who.baseline.budget_s
        if told_s is not None and measured_s is not None and told_s != measured_s:
            raise OtherBudget(told_s)
        return await self._server.next_config()

    async def _run(self, given: Assignment, who: Worker) -> None:
        """Run an assignment to its end, whatever that is, and write its result down."""
        baseline = who.baseline.val_bpb
        ticks = Ticks(self._server, given, baseline, self._leaving)
        result: TrainingResult = Halted("stop")
        seconds = 0.0
        if not self._leaving.is_asked:  # else the owner has left while the server thought
            constants = ", ".join(f"{name}={value!r}" for name, value in given.config_delta.items())
            changes = constants or "nothing changed"
            self._say(f"{given.exp_id}: {changes}; {given.budget_seconds:g} s. {given.note}")
            missing = self._project.script.without(given.config_delta)
            if missing:
                self._results.keep(not_run_of(given, missing, worker_id=who.worker_id))
                return
            with self._leaving.holding(given.exp_id):
                result, seconds = await self._runs.of(job_of(given, self._count), ticks)
        self._results.keep(
            result_of(
                given,
                result,
                worker_id=who.worker_id,
                config=self._project.script.config(given.config_delta, seed=seed_of(given.exp_id)),
                baseline=baseline,
                seconds=seconds,
                is_stopped=ticks.is_stopped,
            )
        )

    async def _hand_in_last(self) -> None:
        """Hand in what waits; where the owner wants to leave, only a few tries more."""
        await self._leaving.patiently(lambda: self._results.hand_in(self._server))
        for pause_s in (*LAST_PAUSES_S, 0.0):
            if not self._results.kept():
                return
            try:
                await self._results.hand_in(self._server)
            except Unavailable as problem:
                self._say(problem.detail)
                await asyncio.sleep(pause_s)
        if waiting := self._results.kept():
            self._say(f"results that wait here: {len(waiting)}; the next `nightjar join` hands them in")


def keep_program(folder: Path, text: str, say: Callable[[str], None]) -> None:
    """Write the swarm's program down, if it is another than before."""
    place = folder / PROGRAM
    content = text.encode()
    if not text or (place.exists() and place.read_bytes() == content):
        return
    place.write_bytes(content)
    say(f"the swarm's program has changed: {place}")
