"""`nightjar demo`: a research night in minutes, with real training and two agents that use HTTP only."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from functions.git import command as git_command
from functions.git import environment as git_environment
from functions.process.logs import start_logging
from state.embedded import make_data_dir
from state.errors import Unavailable
from state.program import PROGRAM
from state.settings import Settings, own_environment
from state.tether import tethered
from triggers.agents.night import agent_token
from triggers.cli.demo_view import DemoView
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import Number, all_settings_from, data_option
from triggers.cli.output import ERROR, OK
from triggers.lab import LocalLab
from triggers.lab_parts import LabParts
from triggers.ports import free_port

ROOT = Path(__file__).parents[2]
AGENTS = ("ada", "grace")
SLOTS = 2
EVALUATOR = "python prepare.py"
"""What measures the score of each run after its training; train.py could print any."""
LOOK_S = 0.5
RETESTS_S = 120.0
"""Seconds to wait for the last retests, besides their training time."""


@click.command()
@click.option(
    "--runs",
    type=click.IntRange(2, 1000),
    default=10,
    show_default=True,
    help="number of ideas of both agents, beside the baseline",
)
@click.option("--budget", type=Number(0.2, 600), default=5.0, help="CPU seconds of each run")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=None,
    help="HTTP port, if it is free [NIGHTJAR_PORT, 3111]",
)
@data_option
def command(runs: int, budget: float, port: int | None, data: Path | None) -> int:
    """Improve a small language model with two agents on two CPU slots; the lab's data is kept."""
    settings = all_settings_from(data=data or all_settings_from(lab="demo").data_dir, lab="lab", port=port)
    settings = settings.model_copy(update={"url": None, "port": free_port(settings.port)})
    start_logging(settings, "up")
    make_data_dir(settings.data_dir)
    return asyncio.run(_demo(settings, runs, budget))


async def _demo(settings: Settings, runs: int, budget: float) -> int:
    began = time.monotonic()
    say("starting Redis, web, events, clock and two CPU workers ...")
    project = make_project(settings.data_dir / "project")
    parts = LabParts(settings, repo=project, cpu=SLOTS, gpu="none")
    async with LocalLab.started(parts, announce=say) as lab:
        if lab.stop.is_set():
            return interrupted(settings, project)
        say(
            f"watch it at {lab.url}/; the unchanged code is measured first, then {' and '.join(AGENTS)} try theirs"
        )
        http = LabHttp(lab.own_settings)
        tag = f"demo{http.ask('GET', '/api/report/tags')['total'] + 1}"
        policy = {"budgets.base_s": budget}
        http.ask(
            "POST", "/api/experiment/setup", {"tag": tag, "policy": policy, "evaluator_command": EVALUATOR}
        )
        view = DemoView(http, tag, runs)
        logs = settings.data_dir / "logs"
        homes = settings.data_dir / "agents"
        async with agents(http, lab.own_settings, tag, project, homes, logs, runs) as processes:
            with view.live():
                while not lab.stop.is_set() and any(p.returncode is None for p in processes):
                    await asyncio.to_thread(view.update)
                    await asyncio.sleep(LOOK_S)
                give_up = time.monotonic() + RETESTS_S + 20 * budget
                while (
                    not lab.stop.is_set()
                    and time.monotonic() < give_up
                    and await asyncio.to_thread(view.retests_are_open)
                ):
                    await asyncio.to_thread(view.update)
                    await asyncio.sleep(LOOK_S)
                await asyncio.to_thread(view.update)
        if lab.stop.is_set():
            return interrupted(settings, project)
        if failed := [p for p in processes if p.returncode != 0]:
            raise Unavailable(
                f"{len(failed)} of {len(AGENTS)} agents failed",
                hint=f"{last_lines(logs)}\n     (their logs are {logs}/agent-*.log)",
            )
        view.results(settings.data_dir, project)
        count = view.finished
        say(f"{count} experiments in {time.monotonic() - began:.0f} s")
        if sys.stdin.isatty() and sys.stdout.isatty():
            say(f"the lab stays up until Ctrl-C: {lab.url}/#tag={tag}")
            await lab.run()
    say("nothing is left running")
    return OK if count >= runs else ERROR


@asynccontextmanager
async def agents(
    http: LabHttp, settings: Settings, tag: str, project: Path, homes: Path, logs: Path, runs: int
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Both agents, each in its own clone; they are terminated at the end, and if this process is killed."""
    processes: list[asyncio.subprocess.Process] = []
    tokens = contextlib.ExitStack()
    try:
        for nth, name in enumerate(AGENTS):
            token = tokens.enter_context(agent_token(http, settings, tag, name))
            clone = homes / tag / name
            clone.parent.mkdir(parents=True, exist_ok=True)
            git(project.parent, "clone", "--quiet", "--no-hardlinks", str(project), str(clone))
            share = runs // len(AGENTS) + (1 if nth < runs % len(AGENTS) else 0)
            with (logs / f"agent-{name}.log").open("ab") as log:
                processes.append(
                    await asyncio.create_subprocess_exec(
                        *tethered(
                            (
                                *(sys.executable, str(ROOT / "examples" / "agent.py")),
                                *("--url", http.url, "--tag", tag, "--repo", str(clone)),
                                *("--name", name, "--runs", str(share), "--seed", str(nth + 1)),
                            )
                        ),
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env=own_environment() | ({} if token is None else {"NIGHTJAR_TOKEN": token}),
                        process_group=0,
                    )
                )
        yield processes
    finally:
        for process in processes:
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.wait() for process in processes))
        tokens.close()


def interrupted(settings: Settings, project: Path) -> int:
    """Say how to go on after Ctrl-C; answers the exit code."""
    say(f"interrupted; the lab is kept: {PROGRAM} up --data {settings.data_dir} --repo {project}")
    return 130


def last_lines(logs: Path) -> str:
    """The last line of each agent's log."""
    lines = [log.read_text().strip().splitlines()[-1:] for log in sorted(logs.glob("agent-*.log"))]
    return "; ".join(line[0] for line in lines if line)


def make_project(folder: Path) -> Path:
    """Make a git repository of the example project, unless it exists."""
    if not (folder / ".git").exists():
        shutil.copytree(ROOT / "examples" / "tinylm", folder, ignore=shutil.ignore_patterns("__pycache__"))
        git(folder, "init", "--quiet", "--initial-branch=main")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", "Begin with the example project")
    return folder


def git(where: Path, *arguments: str) -> None:
    """Run git in a folder, with an identity of our own."""
    identity = ("-c", "user.name=nightjar", "-c", "user.email=nightjar@localhost")
    done = subprocess.run(
        git_command(where, *identity, *arguments),
        env=git_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Unavailable(f"git {arguments[0]} failed in {where}", hint=done.stderr.strip()[-500:])


def say(line: str) -> None:
    """Print to standard error."""
    click.echo(line, err=True)
