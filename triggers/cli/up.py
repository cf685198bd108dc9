"""`nightjar up` starts the whole lab on this machine, keeps it running, and prints a line for each run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import click

from functions.experiments.rules.gains import gain_of
from functions.experiments.views.runs import view
from functions.formats.digits import decimals
from functions.kernel.git import check_data_dir, check_repository, no_project, project_around
from functions.kernel.process.interpreter import find_interpreter, named
from functions.kernel.process.logs import start_logging
from functions.kernel.process.readiness import connected
from functions.kernel.process.remote import isolation_options, python_option
from functions.kernel.process.run_files import linked, own_functions
from functions.kernel.process.running import ended
from functions.kernel.table import OWN
from state.errors import NightjarError, NotFound
from state.experiments import Experiments
from state.facts import ShownFacts, Spread
from state.program import PROGRAM
from state.records import Experiment
from state.settings import Settings
from state.stream import Stream
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import EXISTING_FOLDER, all_settings_from, data_option, lab_option
from triggers.cli.output import note, printable
from triggers.cli.runs import outcome, signed, value
from triggers.cli.tables import cut
from triggers.cli.token import sign_in_link
from triggers.lab import LabParts, LocalLab
from triggers.ports import free_port

log = logging.getLogger(__name__)

START = "experiment.started"
ENDS = frozenset(f"experiment.{what}" for what in ("finished", "lost", "retested", "promoted", "refuted"))
LOOK_S, AWAY_S = 5.0, 1.0
"""Seconds to wait for events, and between two tries while Redis is away."""
WIDTH = 160
"""Width of a line outside a terminal."""


@click.command()
@data_option
@lab_option
@click.option(
    "--port", type=click.IntRange(0, 65535), help="HTTP port, 0: any free one [NIGHTJAR_PORT, 3111]"
)
@click.option(
    "--repo",
    type=EXISTING_FOLDER,
    help="git repository to train from (default: the one around the working directory, with a train.py or --command)",
)
@click.option("--cpu", type=click.IntRange(0, 256), help="CPU slots; 1 when no GPU is seen")
@click.option(
    "--web",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    help="web processes on the port, for a machine with many cores",
)
@click.option("--gpu", default="all", help="all, none, or the index of one GPU")
@click.option("--command", "train_command", help="train command, instead of python train.py")
@click.option(
    "--functions",
    type=click.Path(path_type=Path, file_okay=False),
    help="folder of functions of your own [NIGHTJAR_FUNCTIONS, nightjar.toml]",
)
@click.option("--quiet", is_flag=True, help="print no lines for runs that start and end")
@python_option
@isolation_options
def command(
    data: Path | None,
    lab: str | None,
    port: int | None,
    repo: Path | None,
    cpu: int | None,
    web: int,
    gpu: str,
    train_command: str | None,
    functions: Path | None,
    quiet: bool,
    python: str | None,
    isolation: str,
    network: str,
    data_dirs: tuple[Path, ...],
    hidden_data: Path | None,
    links: tuple[str, ...],
) -> int:
    """Start Redis (unless NIGHTJAR_REDIS_URL is set), web, events, clock and this machine's workers.

    Ctrl-C lets runs finish; a second Ctrl-C ends them.
    """
    settings = all_settings_from(data=data, lab=lab, port=port, functions=functions)
    if settings.port == 0:
        settings = all_settings_from(data=data, lab=lab, port=free_port(0), functions=functions)
    start_logging(settings, "up")
    repo = repo.absolute() if repo is not None else project_around(Path.cwd(), train_command)
    if repo is not None:
        check_repository(repo, train_command)
        if settings.functions is None and (named_by_project := own_functions(repo)) is not None:
            settings = settings.model_copy(update={"functions": named_by_project})
        check_data_dir(settings.data_dir, repo, (*data_dirs, *linked(repo, links).values()))
        if python is None:
            asyncio.run(find_interpreter(repo, os.environ))
    trainer = ("--python", str(named(python))) if python else ()
    reach = ("--isolation", isolation, "--network", network)
    data_words = [word for folder in data_dirs for word in ("--data-dir", str(folder.absolute()))]
    data_words += ["--hidden-data", str(hidden_data.absolute())] if hidden_data else []
    link_words = [word for path in links for word in ("--link", path)]
    parts = LabParts(
        settings, repo, cpu, gpu, train_command, (*trainer, *reach, *data_words, *link_words), web
    )
    return asyncio.run(_run(parts, quiet=quiet))


async def _run(parts: LabParts, *, quiet: bool) -> int:
    async with contextlib.AsyncExitStack() as afterwards, LocalLab.started(parts, announce=note) as lab:
        note(f"ready: {lab.url} (docs at {lab.url}/docs), data in {parts.settings.data_dir}")
        if OWN:
            note(f"functions of your own: {', '.join(OWN)}")
        with contextlib.suppress(NightjarError):  # the key is sent to loopback addresses only
            link = await asyncio.to_thread(sign_in_link, LabHttp(lab.own_settings))
            note(f"sign in: {link} (works once, for 10 minutes; {PROGRAM} open prints another)")
        if lab.worker is not None:
            note(f"training {lab.worker['training']}")
            for warning in lab.worker["warnings"]:
                note(f"warning: {warning}")
            if (why := lab.worker["no_stronger_isolation"]) is not None:
                note(f"no stronger isolation: {why}")
        if parts.repo is None:
            why = no_project(Path.cwd())
            note(f"no worker: {why.detail} -> {why.hint}")
        if not quiet:
            afterwards.push_async_callback(ended, asyncio.create_task(tell_runs(parts.settings, note)))
        await lab.run()
    note("stopped")
    return 0


async def tell_runs(settings: Settings, say: Callable[[str], None]) -> None:
    """Print a line for each run that starts or ends, until cancelled."""
    async with connected(settings) as lab:
        stream, experiments = Stream(lab), Experiments(lab)
        last: str | None = None
        while True:
            try:
                last = last or await stream.newest()
                for event in await stream.follow(last, wait_s=LOOK_S):
                    last = event.id
                    if event.type in ENDS:
                        found = await experiments.shown(event.subject)
                        say(line(found, await experiments.spread(found.runs.experiment)))
                    elif event.type == START:
                        say(begun(await experiments.shown(event.subject), event.data.get("gpu_id")))
            except NotFound:
                continue  # its record is gone already
            except NightjarError:
                await asyncio.sleep(AWAY_S)  # `up` itself reports that Redis is away
            except Exception:  # the lab goes on without these lines
                log.exception("telling of runs")
                await asyncio.sleep(AWAY_S)


def begun(found: ShownFacts, gpu: str | None) -> str:
    """Such as `mar11-7   starts on box:0, budget 300 s  WIDTH 48 -> 96`."""
    e = found.runs.experiment
    budget = found.policy.budgets.base_s if e.budget_s is None else e.budget_s
    place = f" on {gpu}" if gpu else ""
    return _cut(f"{e.experiment_id:<9} starts{place}, budget {budget:g} s  {printable(e.description)}")


def line(found: ShownFacts, noise: Spread | None = None) -> str:
    """Such as `mar11-7  keep  0.99790  +0.00210  301 s  WIDTH 48 -> 96`; a gain above zero is better."""
    e = found.runs.experiment
    run, gain = view(e).model_dump(), gain_of(e, found.runs, found.compared, found.direction)
    why = "over budget" if e.over_budget else f"guard {e.guard}" if e.guard else e.error_kind
    said = f"{outcome(run)} ({why})" if why is not None else outcome(run)
    known = noise.noise if noise else None
    digits = decimals(known.sigma if known else None)
    numbers = f"{value(run, digits):>8} {signed(gain.by if gain else None, digits):>9} {_seconds(e):>6}"
    return _cut(f"{e.experiment_id:<9} {said:<8} {numbers}  {printable(e.description)}")


def _cut(told: str) -> str:
    width = shutil.get_terminal_size((WIDTH, 0)).columns if sys.stderr.isatty() else WIDTH
    return cut(told, width)


def _seconds(e: Experiment) -> str:
    seconds = e.training_seconds
    if seconds is None and e.started_at is not None and e.finished_at is not None:
        seconds = e.finished_at - e.started_at
    return "" if seconds is None else f"{seconds:.0f} s"
