"""Joining a swarm: check the train.py, measure its baseline, register, then work until the owner leaves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from functions.kernel.process.interpreter import Interpreter, brief, find_interpreter, named, shortcomings
from functions.kernel.process.project import check_data_dir
from functions.kernel.process.remote import Baseline, Joined, WorkerTerms
from state.errors import Invalid, NotFound, Unauthenticated
from state.settings import Settings
from workers.attempt.disk import remove_tree
from workers.attempt.isolation import chosen, described
from workers.attempt.processes import kill_all
from workers.attempt.runner import TrainingRunner
from workers.attempt.worktree import checkouts_in
from workers.device import Device, HealthSampler, discover
from workers.lane.client import calling
from workers.slot import Slot
from workers.swarm.leaving import Leaving
from workers.swarm.project import Project, measured, shown, taken
from workers.swarm.runs import DeviceRuns, PendingResults
from workers.swarm.server import CALLED, SwarmRegistered, SwarmServer, VariedConstant
from workers.swarm.working import BudgetChanged, SpecPipeline, SwarmIdentity, WorkLoop, keep_program


@dataclass(frozen=True)
class JoinOptions:
    enroll_token: str | None = None
    max_runs: int | None = None
    baseline_runs: int = 3
    baseline_bpb: float | None = None
    """Score of the unchanged script, as the owner states it. None: it is measured."""
    use_spec_pipeline: bool = False
    """Preload drafts of the swarm's program between runs, and follow those that are deployed or confirmed."""


async def join(joined: Joined, options: JoinOptions, settings: Settings, say: Callable[[str], None]) -> None:
    """Join, and work until the owner leaves. Raises Invalid: no usable script or baseline. NightjarError: refused."""
    leaving = Leaving(say)
    leaving.on_signals()
    train_py = checked_script(joined.terms)
    check_data_dir(settings.data_dir, train_py.parent, joined.terms.data_dirs)
    project = await asyncio.to_thread(taken, train_py, settings.data_dir / "project")
    slot = await asyncio.to_thread(slot_of, joined, train_py)
    await asyncio.to_thread(clear, joined, slot, settings)
    python = Interpreter(slot.python) if slot.python else await find_interpreter(slot.repo, os.environ)
    say(f"{joined.name} joins {joined.url} with {brief(train_py)} on {slot.device.name}, by {python.path}")
    say(f"isolation: {described(slot.tier, network=slot.network)}")
    for warning in await asyncio.to_thread(shortcomings, python, slot.repo, os.environ):
        say(f"warning: {warning}")
    for lack in project.script.lacks():
        say(f"warning: {project.name}: {lack}")
    if project.linked:
        say(f"runs read these where they are, and get copies of all else: {', '.join(project.linked)}")
    async with HealthSampler() as sampler, calling(joined, CALLED) as lab:
        runner = TrainingRunner(
            slot,
            settings,
            lab_identity=joined.mark,
            sampler=sampler,
            alone=True,
            apart=True,
            checkouts=project.checkout,
        )
        joining = JoiningWorker(joined, settings, project, DeviceRuns(runner, leaving, say), leaving, say)
        await joining.go_on(SwarmServer(lab), options, slot.device)


def checked_script(terms: WorkerTerms) -> Path:
    """The owner's train.py. Raises Invalid: none is named, or there is none."""
    if terms.train_py is None:
        raise Invalid("no train.py is named", hint="add --train-py PATH")
    if not terms.train_py.is_file():
        raise Invalid(f"there is no {terms.train_py}", hint="name another with --train-py PATH")
    return terms.train_py


def slot_of(joined: Joined, train_py: Path) -> Slot:
    """This worker's device with the options of its runs. Blocks. Raises Invalid: no such device, Python or tier."""
    terms = joined.terms
    gpus = discover(joined.name, gpu=terms.gpu or "all")
    device = gpus[0] if gpus else discover(joined.name, gpu="none", cpu=1)[0]
    return Slot(
        repo=train_py.parent,
        command=("python", train_py.name),
        python=named(terms.python) if terms.python else None,
        tier=chosen(terms.isolation).tier,
        network=terms.network,
        data_dirs=terms.data_dirs,
        pass_env=terms.pass_env,
        device=device,
    )


def clear(joined: Joined, slot: Slot, settings: Settings) -> None:
    """Remove processes and folders that a killed worker has left. Blocks."""
    kill_all(joined.mark)
    for _, folder in checkouts_in(slot.work_dir(settings)):
        remove_tree(folder)


class JoiningWorker:
    """One start of a worker, after its device and script were checked."""

    def __init__(
        self,
        joined: Joined,
        settings: Settings,
        project: Project,
        runs: DeviceRuns,
        leaving: Leaving,
        say: Callable[[str], None],
    ) -> None:
        self._joined = joined
        self._place = settings.data_dir
        self._tag = joined.terms.tag or settings.swarm_tag
        self._project = project
        self._runs = runs
        self._leaving = leaving
        self._say = say
        self._told_of: set[str] = set()
        """Constants on trial that the script lacks, of which the owner was told."""

    async def go_on(self, server: SwarmServer, options: JoinOptions, device: Device) -> None:
        """Hand in waiting results, measure the baseline, register, then work."""
        results = PendingResults(self._place / "results", self._say)
        if self._joined.token is None:
            await server.health()  # so that a wrong URL is reported before the measurement
        else:
            await self._leaving.patiently(lambda: self._go_on_as_before(server, results))
        peek = await server.peek(self._tag)
        self._check(peek.varied or ())
        ahead = None
        if options.use_spec_pipeline:
            ahead = SpecPipeline(server, self._joined.terms.tag, self._say)
        working = WorkLoop(
            server, self._project, self._runs, results, self._leaving, self._say, self._check, ahead
        )
        budget_s = peek.base_s
        while (baseline := await self._enter(server, options, device, budget_s)) is not None:
            if (synced := await self._leaving.patiently(server.sync)) is None:
                return
            self._check(synced.dimensions)
            try:
                await working.go_on(SwarmIdentity(self._joined.name, baseline, self._place), options.max_runs)
                return
            except BudgetChanged as other:
                budget_s = other.budget_s

    async def _go_on_as_before(self, server: SwarmServer, results: PendingResults) -> None:
        """Hand in waiting results; forget the token if the swarm does not know this worker any more."""
        try:
            await server.sync()
            await results.hand_in(server)
        except (NotFound, Unauthenticated) as problem:
            self._say(
                f"{self._joined.url} does not know this worker any more ({problem.detail}): it registers anew"
            )
            self._keep(token=None, registered=None)
            server.lab.bear(None)

    def _check(self, varied: Sequence[VariedConstant]) -> None:
        """Refuse to serve a swarm that varies constants which the script lacks: each run would fail.

        Most runs leave out a constant that is on trial. If the script lacks it, the owner is told once.

        Raises:
            Invalid: naming the constants.
        """
        missing = self._project.script.without(d.name for d in varied if not d.on_trial)
        if missing:
            has = ", ".join(self._project.script.tunable)
            raise Invalid(
                f"{self._tag} varies what {self._project.name} has no constant for: {', '.join(missing)}",
                hint=f"name its constants so at their top level (it has {has}), or have the organiser define other"
                " dimensions",
            )
        for name in self._project.script.without(d.name for d in varied if d.on_trial):
            if name not in self._told_of:
                self._told_of.add(name)
                [default] = [d.default_value for d in varied if d.name == name]
                self._say(
                    f"{self._tag} tries {name}, which {self._project.name} has no constant for: to take part, add"
                    f" `{name} = {default!r}` at its top level, use it, and join again"
                )

    async def _enter(
        self, server: SwarmServer, options: JoinOptions, device: Device, base_s: float | None
    ) -> Baseline | None:
        """Measure and register, unless that is done already; None if the owner leaves before."""
        baseline = await self._baseline(options, base_s)
        if baseline is None:
            return None
        self._keep(baseline=baseline)
        self._say(shown(baseline))
        terms = self._joined.terms
        request: dict[str, Any] = {
            "gpu_type": terms.gpu_type or device.name,
            "baseline_bpb": baseline.val_bpb,
            "contact": terms.contact,
            **({"tag": terms.tag} if terms.tag else {}),
        }
        if self._joined.token is not None and self._joined.registered == request:
            return baseline
        registered = await self._leaving.patiently(lambda: self._register(server, options, request))
        if registered is None:
            return None
        token = registered.worker_token or self._joined.token
        self._keep(token=token, registered=request)
        server.lab.bear(token)
        self._say(registered.message)
        if registered.current_program_md:
            self._say(registered.current_program_md)
            keep_program(self._place, registered.current_program_md, lambda _: None)
        return baseline

    async def _register(
        self, server: SwarmServer, options: JoinOptions, request: dict[str, Any]
    ) -> SwarmRegistered:
        entering = {} if options.enroll_token is None else {"enroll_token": options.enroll_token}
        return await server.register({**request, **entering})

    async def _baseline(self, options: JoinOptions, base_s: float | None) -> Baseline | None:
        """The owner's baseline, the remembered one, or a new measurement."""
        digest, before = self._project.digest, self._joined.baseline
        if options.baseline_bpb is not None:
            return Baseline(val_bpb=options.baseline_bpb, project=digest)
        if before is not None and before.project == digest:
            own_s = self._project.script.own_budget_s
            if not before.runs or own_s is None or base_s in (None, before.budget_s):
                return before
            self._say(f"runs of {self._tag} take {base_s:g} s: the baseline is measured anew")
        elif before is not None:
            self._say(f"{self._project.name} is not as it was: its baseline is measured anew")
        return await measured(
            self._project, self._runs, options.baseline_runs, base_s, self._leaving, self._say
        )

    def _keep(self, **changed: Any) -> None:
        """Remember these values for the next start."""
        self._joined = self._joined.model_copy(update=changed)
        self._joined.save(self._place)
