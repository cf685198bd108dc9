"""One start of a swarm's worker: it measures its baseline, registers, then runs assignment after assignment.

Its loop is not the one of workers.asker: a swarm lends no GPU, so the worker itself surveys its device before
it asks, and its owner's second Ctrl-C gives the run back. Both ask, wait and keep results by the same functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from functions.kernel.process.remote import Baseline, JoinedSwarm
from functions.swarm.rules.results import NO_CONSTANT
from state.errors import Invalid, NightjarError, NotFound, Unauthenticated, Unavailable
from state.settings import Settings
from workers.attempt.job import HaltedRun, TrainingResult
from workers.lab_client import Spool
from workers.swarm.project import Project, measured, shown
from workers.swarm.runs import (
    LONGEST_ERROR,
    DeviceRuns,
    Leaving,
    SwarmTicks,
    brief_result,
    job_of,
    result_of,
    seed_of,
)
from workers.swarm.server import PreloadedDraft, ResultAnswer, SwarmAssignment, SwarmServer, VariedConstant

PROGRAM = "program.md"


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


LAST_PAUSES_S = (1.0, 2.0, 4.0)
"""Seconds between the last tries to hand in a result, when the owner leaves."""


@dataclass(frozen=True)
class JoinOptions:
    enroll_token: str | None = None
    max_runs: int | None = None
    baseline_runs: int = 3
    baseline_bpb: float | None = None
    """Score of the unchanged script, as the owner states it. None: it is measured."""
    use_spec_pipeline: bool = False
    """Preload drafts of the swarm's program between runs, and follow those that are deployed or confirmed."""


@dataclass
class CheckedWorker:
    """A worker whose device and script were checked."""

    joined: JoinedSwarm
    options: JoinOptions
    settings: Settings
    server: SwarmServer
    project: Project
    runs: DeviceRuns
    leaving: Leaving
    say: Callable[[str], None]
    gpu_name: str

    def __post_init__(self) -> None:
        self._place = self.settings.data_dir
        self._tag = self.joined.terms.tag or self.settings.swarm_tag
        self._results = Spool(self._place / "results", aside=self._place / "results" / "refused")
        self._drafts = SpecPipeline(self.server, self.joined.terms.tag, self.say)
        self._count = 0
        self._told_of: set[str] = set()
        """Constants on trial that the script lacks, of which the owner was told."""

    async def go_on(self) -> None:
        """Hand in waiting results, measure the baseline, register, then work until the owner leaves."""
        if self.joined.token is None:
            await self.server.health()  # so that a wrong URL is reported before the measurement
        else:
            await self.leaving.patiently(self._go_on_as_before)
        peek = await self.server.peek(self._tag)
        self._check(peek.dimensions)
        budget_s = peek.budget_seconds
        while (baseline := await self._enter(budget_s)) is not None:
            if (budget_s := await self._work(baseline)) is None:
                break
        await self._hand_in_last()

    async def _go_on_as_before(self) -> None:
        """Hand in waiting results; forget the token if the swarm does not know this worker any more."""
        try:
            await self.server.sync()
            await self._hand_in()
        except (NotFound, Unauthenticated) as problem:
            url = self.joined.url
            self.say(f"{url} does not know this worker any more ({problem.detail}): it registers anew")
            self._remember(token=None, registered=None)
            self.server.lab.bear(None)

    def _check(self, varied: Sequence[VariedConstant]) -> None:
        """Refuse to serve a swarm that varies constants which the script lacks: each run would fail.

        Most runs leave out a constant that is on trial. If the script lacks it, the owner is told once.

        Raises:
            Invalid: naming the constants.
        """
        missing = self.project.script.without(d.name for d in varied if not d.on_trial)
        if missing:
            has = ", ".join(self.project.script.tunable)
            raise Invalid(
                f"{self._tag} varies what {self.project.name} has no constant for: {', '.join(missing)}",
                hint=f"name its constants so at their top level (it has {has}), or have the organiser define other"
                " dimensions",
            )
        for name in self.project.script.without(d.name for d in varied if d.on_trial):
            if name not in self._told_of:
                self._told_of.add(name)
                [default] = [d.default_value for d in varied if d.name == name]
                self.say(
                    f"{self._tag} tries {name}, which {self.project.name} has no constant for: to take part, add"
                    f" `{name} = {default!r}` at its top level, use it, and join again"
                )

    async def _enter(self, base_s: float | None) -> Baseline | None:
        """Measure and register, unless that is done already; None if the owner leaves before."""
        baseline = await self._baseline(base_s)
        if baseline is None:
            return None
        self._remember(baseline=baseline)
        self.say(shown(baseline))
        terms, token = self.joined.terms, self.options.enroll_token
        request: dict[str, Any] = {
            "gpu_type": terms.gpu_type or self.gpu_name,
            "baseline_bpb": baseline.val_bpb,
            "contact": terms.contact,
            **({"tag": terms.tag} if terms.tag else {}),
        }
        if self.joined.token is not None and self.joined.registered == request:
            return baseline
        entering = {} if token is None else {"enroll_token": token}
        registered = await self.leaving.patiently(lambda: self.server.register({**request, **entering}))
        if registered is None:
            return None
        self._remember(token=registered.worker_token or self.joined.token, registered=request)
        self.server.lab.bear(self.joined.token)
        self.say(registered.message)
        if registered.current_program_md:
            self.say(registered.current_program_md)
            keep_program(self._place, registered.current_program_md, lambda _: None)
        return baseline

    async def _baseline(self, base_s: float | None) -> Baseline | None:
        """The owner's baseline, the remembered one, or a new measurement."""
        digest, before = self.project.digest, self.joined.baseline
        if self.options.baseline_bpb is not None:
            return Baseline(val_bpb=self.options.baseline_bpb, project=digest)
        if before is not None and before.project == digest:
            own_s = self.project.script.own_budget_s
            if not before.runs or own_s is None or base_s in (None, before.budget_s):
                return before
            self.say(f"runs of {self._tag} take {base_s:g} s: the baseline is measured anew")
        elif before is not None:
            self.say(f"{self.project.name} is not as it was: its baseline is measured anew")
        return await measured(
            self.project, self.runs, self.options.baseline_runs, base_s, self.leaving, self.say
        )

    def _remember(self, **changed: Any) -> None:
        """Remember these values for the next start."""
        self.joined = self.joined.model_copy(update=changed)
        self.joined.save(self._place)

    async def _work(self, baseline: Baseline) -> float | None:
        """Run assignment after assignment.

        None: the owner leaves, or enough were run. Else the seconds of the swarm's runs: they are not the baseline's
        any more, so scores cannot be compared with it.

        Raises:
            NightjarError: the swarm refuses us.
        """
        while self._count != self.options.max_runs and await self.runs.ready():
            given = await self.leaving.patiently(lambda: self._next(baseline))
            if not isinstance(given, SwarmAssignment):
                return given
            self._count += 1
            await self._run(given, baseline.val_bpb)
        return None

    async def _next(self, baseline: Baseline) -> SwarmAssignment | float:
        """Hand in waiting results, then ask for an assignment: the server gives a worker one at a time.

        A number is another budget than the baseline's.
        """
        await self._hand_in()
        synced = await self.server.sync()
        program = synced.program_md
        if self.options.use_spec_pipeline:
            program = await self._drafts.program(program)
        keep_program(self._place, program, self.say)
        self._check(synced.dimensions)
        told_s, measured_s = synced.budget_seconds, baseline.budget_s
        if told_s is not None and measured_s is not None and told_s != measured_s:
            return told_s
        return await self.server.next_config()

    async def _run(self, given: SwarmAssignment, baseline: float) -> None:
        """Run an assignment to its end, and write down its result."""
        ticks = SwarmTicks(self.server, given, baseline, self.leaving)
        result: TrainingResult = HaltedRun("stop")
        seconds = 0.0
        missing = self.project.script.without(given.config_delta)
        if not self.leaving.asked.is_set():  # else the owner has left while the server thought
            constants = ", ".join(f"{name}={value!r}" for name, value in given.config_delta.items())
            changes = constants or "nothing changed"
            self.say(f"{given.exp_id}: {changes}; {given.budget_seconds:g} s. {given.note}")
            if not missing:
                with self.leaving.holding(given.exp_id):
                    result, seconds = await self.runs.of(job_of(given, self._count), ticks)
        seed = seed_of(given.exp_id)
        sent = result_of(
            given,
            result,
            worker_id=self.joined.name,
            config={} if missing else self.project.script.config(given.config_delta, seed=seed),
            baseline=baseline,
            seconds=seconds,
            is_stopped=ticks.is_stopped,
        )
        if missing:
            sent["error"] = f"{NO_CONSTANT}: {', '.join(missing)}"[:LONGEST_ERROR]
        self._results.keep(given.exp_id, "swarm::result", sent)

    async def _hand_in(self) -> None:
        """Send waiting results. Raises as Spool.send_all."""
        await self._results.send_all(self.server.result, self._tell)

    def _tell(self, name: str, result: Mapping[str, Any], answer: ResultAnswer | NightjarError) -> None:
        """Tell the owner that a result was taken, or refused and put aside."""
        if isinstance(answer, NightjarError):
            hint = f"; {answer.hint}" if answer.hint else ""
            place = f"{self._results.aside}/{name}.json"
            self.say(f"{name} was not taken: {answer.detail}{hint}. It is kept in {place}")
        else:
            self.say(f"{name}: {brief_result(result)}. Results of the swarm: {answer.total_experiments:,}")

    async def _hand_in_last(self) -> None:
        """Hand in waiting results; when the owner leaves, with only a few more tries."""
        await self.leaving.patiently(self._hand_in)
        for pause_s in (*LAST_PAUSES_S, 0.0):
            if not self._results.kept():
                return
            try:
                await self._hand_in()
            except Unavailable as problem:
                self.say(problem.detail)
                await asyncio.sleep(pause_s)
            except Unauthenticated as problem:  # this start has not registered anew
                self.say(problem.detail)
                break
        if waiting := self._results.kept():
            self.say(f"results that wait here: {len(waiting)}; the next `nightjar join` hands them in")
