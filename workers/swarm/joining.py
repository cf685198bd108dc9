"""Joining a swarm: check the train.py, measure its baseline, register, then work until the owner leaves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from functions.kernel.process.interpreter import Interpreter, brief, find_interpreter, named, shortcomings
from functions.kernel.process.project import check_data_dir
from functions.kernel.process.remote import Joined, WorkerTerms
from state.errors import Invalid
from state.settings import Settings
from workers.attempt.disk import remove_tree
from workers.attempt.isolation import chosen, described
from workers.attempt.processes import kill_all
from workers.attempt.runner import TrainingRunner
from workers.attempt.worktree import checkouts_in
from workers.device import HealthSampler, discover
from workers.lane.client import calling
from workers.slot import Slot
from workers.swarm.leaving import Leaving
from workers.swarm.project import taken
from workers.swarm.runs import DeviceRuns
from workers.swarm.server import CALLED, SwarmServer
from workers.swarm.working import JoinOptions, SwarmWorker


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
        server, runs = SwarmServer(lab), DeviceRuns(runner, leaving, say)
        gpu = slot.device.name
        await SwarmWorker(joined, options, settings, server, project, runs, leaving, say, gpu).go_on()


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
