"""The loop of a swarm's worker: sync, ask for a config, run it, hand the result in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from functions.kernel.process.remote import Baseline
from state.errors import NightjarError, Unavailable
from workers.attempt.job import HaltedRun, TrainingResult
from workers.swarm.leaving import Leaving
from workers.swarm.project import Project
from workers.swarm.runs import DeviceRuns, PendingResults, SwarmTicks, job_of, not_run_of, result_of, seed_of
from workers.swarm.server import PreloadedDraft, SwarmAssignment, SwarmServer, VariedConstant

PROGRAM = "program.md"
LAST_PAUSES_S = (1.0, 2.0, 4.0)
"""Seconds between the last tries to hand in a result, when the owner leaves."""


class BudgetChanged(Exception):
    """The swarm's runs have another budget than the baseline, so their scores cannot be compared with it."""

    def __init__(self, budget_s: float) -> None:
        super().__init__(budget_s)
        self.budget_s = budget_s
        """Seconds of a run."""


@dataclass(frozen=True)
class SwarmIdentity:
    """The identity of a worker, and its baseline."""

    worker_id: str
    baseline: Baseline
    folder: Path
    """The folder where its owner finds the swarm's program."""


class WorkLoop:
    """A worker that has joined."""

    def __init__(
        self,
        server: SwarmServer,
        project: Project,
        runs: DeviceRuns,
        results: PendingResults,
        leaving: Leaving,
        say: Callable[[str], None],
        check: Callable[[Sequence[VariedConstant]], None],
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

    async def go_on(self, who: SwarmIdentity, most: int | None) -> None:
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

    async def _next(self, who: SwarmIdentity) -> SwarmAssignment:
        """Hand in waiting results, then ask for an assignment: the server gives a worker one at a time."""
        await self._results.hand_in(self._server)
        synced = await self._server.sync()
        program = synced.program_md
        if self._ahead is not None:
            program = await self._ahead.program(program)
        keep_program(who.folder, program, self._say)
        self._check(synced.dimensions)
        told_s, measured_s = synced.budget_seconds, who.baseline.budget_s
        if told_s is not None and measured_s is not None and told_s != measured_s:
            raise BudgetChanged(told_s)
        return await self._server.next_config()

    async def _run(self, given: SwarmAssignment, who: SwarmIdentity) -> None:
        """Run an assignment to its end, and write down its result."""
        baseline = who.baseline.val_bpb
        ticks = SwarmTicks(self._server, given, baseline, self._leaving)
        result: TrainingResult = HaltedRun("stop")
        seconds = 0.0
        if not self._leaving.asked.is_set():  # else the owner has left while the server thought
            constants = ", ".join(f"{name}={value!r}" for name, value in given.config_delta.items())
            changes = constants or "nothing changed"
            self._say(f"{given.exp_id}: {changes}; {given.budget_seconds:g} s. {given.note}")
            missing = self._project.script.without(given.config_delta)
            if missing:
                self._keep(not_run_of(given, missing, worker_id=who.worker_id))
                return
            with self._leaving.holding(given.exp_id):
                result, seconds = await self._runs.of(job_of(given, self._count), ticks)
        self._keep(
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

    def _keep(self, result: Mapping[str, Any]) -> None:
        self._results.keep(result["exp_id"], "swarm::result", result)

    async def _hand_in_last(self) -> None:
        """Hand in waiting results; when the owner leaves, with only a few more tries."""
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


class SpecPipeline:
    """The draft of a swarm's next program, preloaded in memory between two runs.

    When the draft is flushed, the worker returns to the synced program. A draft that is already confirmed when first
    seen is not preloaded: the synced program has the same content.
    """

    def __init__(self, server: SwarmServer, tag: str | None, say: Callable[[str], None]) -> None:
        self._server = server
        self._tag = tag
        self._say = say
        self._draft: PreloadedDraft | None = None
        self._since: str = ""
        """The swarm's program when the draft was first seen."""
        self._preloaded_for: str = ""
        """The swarm's program when the draft was last preloaded. It also changes with the worker's population."""
        self._is_told = False
        """Whether the owner was told that there are no drafts."""

    async def program(self, synced: str) -> str:
        """The program for the worker's next run: the draft, or the `synced` program."""
        try:
            return await self._followed(synced)
        except NightjarError as problem:
            self._draft = None
            if not self._is_told:
                self._say(f"no drafts of the program: {problem.detail}")
            self._is_told = True
            return synced

    async def _followed(self, synced: str) -> str:
        status = await self._server.pipeline(self._tag)
        if status.spec_state not in ("ready", "confirmed"):
            self._drop(flushed=status.last_flush_token)
            return synced
        is_new = self._draft is None or self._draft.spec_id != status.spec_id
        if is_new:
            self._drop(flushed=status.last_flush_token)
        if status.spec_state == "confirmed":
            # the swarm's own program has the same content now or soon, and the part for the worker's population
            return self._draft.program_md if self._draft is not None and synced == self._since else synced
        if is_new:
            self._since = synced
        if is_new or synced != self._preloaded_for:
            self._draft, self._preloaded_for = await self._server.preload(self._tag), synced
        if self._draft is None or self._draft.spec_id != status.spec_id:
            return synced  # it was flushed meanwhile, or another one is ready
        return self._draft.program_md if status.deploy_allowed else synced

    def _drop(self, *, flushed: str | None) -> None:
        if self._draft is not None and self._draft.spec_id == flushed:
            self._say(f"{flushed} was dropped: the swarm's program is followed")
        self._draft = None


def keep_program(folder: Path, text: str, say: Callable[[str], None]) -> None:
    """Write down the swarm's program if it has changed."""
    place = folder / PROGRAM
    content = text.encode()
    if not text or (place.exists() and place.read_bytes() == content):
        return
    place.write_bytes(content)
    say(f"the swarm's program has changed: {place}")
