"""The process of a swarm's worker. `python -P -m workers.join`.

It checks the train.py, measures its baseline, registers, then works until the owner leaves.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import click

from functions.kernel.git import check_data_dir
from functions.kernel.process.ending import adopt_orphans
from functions.kernel.process.interpreter import Interpreter, brief, find_interpreter, named, shortcomings
from functions.kernel.process.logs import start_logging
from functions.kernel.process.remote import Isolation, JoinedSwarm, WorkerTerms, alone_in, remembered
from functions.kernel.process.running import exit_with
from state.errors import Invalid, NightjarError
from state.program import PROGRAM
from state.settings import Settings
from workers.attempt.isolation import chosen, described
from workers.attempt.processes import kill_all
from workers.attempt.runner import TrainingRunner
from workers.attempt.usage import remove_tree
from workers.attempt.worktree import checkouts_in
from workers.lab_client import calling
from workers.slot import HealthSampler, Slot, discover
from workers.swarm.project import taken
from workers.swarm.runs import DeviceRuns, Leaving
from workers.swarm.server import CALLED, SwarmServer
from workers.swarm.working import CheckedWorker, JoinOptions


async def join(
    joined: JoinedSwarm, options: JoinOptions, settings: Settings, say: Callable[[str], None]
) -> None:
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
        await CheckedWorker(joined, options, settings, server, project, runs, leaving, say, gpu).go_on()


def checked_script(terms: WorkerTerms) -> Path:
    """The owner's train.py. Raises Invalid: none is named, or there is none."""
    if terms.train_py is None:
        raise Invalid("no train.py is named", hint="add --train-py PATH")
    if not terms.train_py.is_file():
        raise Invalid(f"there is no {terms.train_py}", hint="name another with --train-py PATH")
    return terms.train_py


def slot_of(joined: JoinedSwarm, train_py: Path) -> Slot:
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


def clear(joined: JoinedSwarm, slot: Slot, settings: Settings) -> None:
    """Remove processes and folders that a killed worker has left. Blocks."""
    kill_all(joined.mark)
    for _, folder in checkouts_in(slot.work_dir(settings)):
        remove_tree(folder)


def say(line: str) -> None:
    """Print a line for the worker's owner."""
    click.echo(line)
    sys.stdout.flush()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
# triggers.cli.worker reads the next four before this process starts; they are here for --help
@click.option("--url", expose_value=False, help="the swarm's URL")
@click.option(
    "--enroll-token",
    expose_value=False,
    help="the token to enter, from the organiser [NIGHTJAR_ENROLL_TOKEN]",
)
@click.option("--worker-id", metavar="NAME", expose_value=False, help="the worker's name, which no other has")
@click.option("--data", metavar="PATH", expose_value=False, help="the worker's own directory [NIGHTJAR_DATA]")
@click.option("--train-py", type=click.Path(path_type=Path), help="the script to run")
@click.option("--gpu-type", help="GPU name that others see [default: its model]")
@click.option("--contact", help="address at which the organiser reaches you")
@click.option("--tag", help="the swarm, if the server has several")
@click.option("--max-runs", type=click.IntRange(1), help="leave after so many runs")
@click.option(
    "--baseline-runs",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="runs of the unchanged script; the baseline is their mean",
)
@click.option("--skip-baseline", is_flag=True, help="do not measure; needs --baseline-bpb")
@click.option("--baseline-bpb", type=float, help="val_bpb of the unchanged script")
@click.option("--gpu", help="the index of a GPU, or none [default: the first, else the CPU]")
@click.option("--python", help="interpreter that trains [default: the project's own]")
@click.option(
    "--isolation",
    type=click.Choice(get_args(Isolation)),
    help="how far runs are kept from this machine [default: the strongest that works here]",
)
@click.option("--network", type=click.Choice(["on", "off"]), help="network for isolated runs")
@click.option(
    "--data-dir",
    "data_dirs",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="folder that isolated runs may read, too",
)
@click.option(
    "--use-spec-pipeline",
    is_flag=True,
    help="preload drafts of the swarm's next program, and follow one as soon as the swarm trusts it",
)
@click.option("--pass-env", multiple=True, metavar="NAME", help="environment variable for runs")
def main(
    train_py: Path | None,
    gpu_type: str | None,
    contact: str | None,
    tag: str | None,
    max_runs: int | None,
    baseline_runs: int,
    skip_baseline: bool,
    baseline_bpb: float | None,
    gpu: str | None,
    python: str | None,
    isolation: Isolation | None,
    network: str | None,
    data_dirs: tuple[Path, ...],
    pass_env: tuple[str, ...],
    use_spec_pipeline: bool,
) -> None:
    """Join a swarm with your train.py: pull configs, run them on this machine, report.

    The first time: --url URL --train-py PATH. Options are remembered: afterwards `join` alone goes on, and options
    that you give again replace the remembered ones.

    Your train.py is never changed: each run gets a copy with other constants. Ctrl-C finishes the run and leaves;
    a second one gives the run back.
    """
    if skip_baseline != (baseline_bpb is not None):
        raise click.UsageError("--skip-baseline and --baseline-bpb X go together")
    if baseline_bpb is not None and not math.isfinite(baseline_bpb):
        raise click.BadParameter(f"{baseline_bpb} is no finite number", param_hint="--baseline-bpb")
    said = {
        "train_py": train_py.expanduser().absolute() if train_py else None,
        "gpu_type": gpu_type,
        "contact": contact,
        "tag": tag,
        "gpu": gpu,
        "python": python,
        "isolation": isolation,
        "network": None if network is None else network == "on",
        "data_dirs": tuple(folder.absolute() for folder in data_dirs) or None,
        "pass_env": pass_env or None,
    }
    settings = Settings()
    start_logging(settings, "join")
    enroll_token = settings.enroll_token.get_secret_value() if settings.enroll_token else None
    options = JoinOptions(enroll_token, max_runs, baseline_runs, baseline_bpb, use_spec_pipeline)
    try:
        with alone_in(settings.data_dir):
            joined = remembered(settings.data_dir, JoinedSwarm)
            if joined is None:
                raise Invalid("this worker has joined no swarm yet", hint="join with --url URL")
            terms = WorkerTerms.model_validate(
                joined.terms.model_dump() | {name: value for name, value in said.items() if value is not None}
            )
            joined = joined.model_copy(update={"terms": terms})
            joined.save(settings.data_dir)
            adopt_orphans()
            asyncio.run(join(joined, options, settings, say))
    except NightjarError as problem:
        sys.exit(exit_with(problem))


if __name__ == "__main__":
    main(prog_name=f"{PROGRAM} join")
