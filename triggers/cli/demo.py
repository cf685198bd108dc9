"""`nightjar demo`: a research night in minutes, with real training and two agents that use HTTP only."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
from rich import markup
from rich.progress import MofNCompleteColumn

from functions.formats.digits import DECIMALS, decimals
from functions.kernel.process.logs import start_logging
from state.embedded import make_data_dir
from state.errors import Unavailable
from state.own_processes import tethered
from state.program import PROGRAM, as_typed
from state.settings import Settings, own_environment
from triggers.agents.night import agent_token
from triggers.agents.place import git
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import FiniteNumber, all_settings_from, data_option
from triggers.cli.output import ERROR, OK, note, printable, show_patch
from triggers.cli.runs import digits_of, outcome, print_runs, signed
from triggers.cli.tables import bar
from triggers.lab import LabParts, LocalLab
from triggers.ports import free_port

ROOT = Path(__file__).parents[2]
AGENTS = ("ada", "grace")
SLOTS = 2
IDENTITY = ("-c", "user.name=nightjar", "-c", "user.email=nightjar@localhost")
EVALUATOR = "python prepare.py"
"""Command that measures each score after the training: train.py could print any value."""
LOOK_S = 0.5
RETESTS_S = 120.0
"""Seconds to wait for the last retests, in addition to their training time."""


@click.command()
@click.option(
    "--runs",
    type=click.IntRange(2, 1000),
    default=10,
    show_default=True,
    help="number of ideas of both agents, beside the baseline",
)
@click.option("--budget", type=FiniteNumber(0.2, 600), default=5.0, help="CPU seconds of each run")
@click.option("--port", type=click.IntRange(0, 65535), help="HTTP port, if it is free [NIGHTJAR_PORT, 3111]")
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
    note("starting Redis, web, events, clock and two CPU workers ...")
    project = make_project(settings.data_dir / "project")
    parts = LabParts(settings, repo=project, cpu=SLOTS, gpu="none")
    async with LocalLab.started(parts, announce=note) as lab:
        if lab.stop.is_set():
            return interrupted(settings, project)
        note(
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
            with view.bar:
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
        note(f"{count} experiments in {time.monotonic() - began:.0f} s")
        if sys.stdin.isatty() and sys.stdout.isatty():
            note(f"the lab stays up until Ctrl-C: {lab.url}/#tag={tag}")
            await lab.run()
    note("nothing is left running")
    return OK if count >= runs else ERROR


@asynccontextmanager
async def agents(
    http: LabHttp, settings: Settings, tag: str, project: Path, homes: Path, logs: Path, runs: int
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Run both agents, each in its own clone. They end with this context, or if this process is killed."""
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
    """Print how to go on after Ctrl-C; answers the exit code."""
    note(f"interrupted; the lab is kept: {PROGRAM} up --data {settings.data_dir} --repo {project}")
    return 130


def last_lines(logs: Path) -> str:
    lines = [log.read_text().strip().splitlines()[-1:] for log in sorted(logs.glob("agent-*.log"))]
    return "; ".join(line[0] for line in lines if line)


def make_project(folder: Path) -> Path:
    """Make a git repository of the example project, unless it exists."""
    if not (folder / ".git").exists():
        shutil.copytree(ROOT / "examples" / "tinylm", folder, ignore=shutil.ignore_patterns("__pycache__"))
        git(folder, "init", "--quiet", "--initial-branch=main")
        git(folder, "add", "--all")
        git(folder, *IDENTITY, "commit", "--quiet", "--message", "Begin with the example project")
    return folder


FINISHED = ("keep", "discard", "crash", "timeout")
VERDICTS = {
    "confirmed": "[bold green]confirmed[/] by a second run on another seed",
    "demoted": "[red]demoted[/]: runs on another seed did not bear it out",
}
STYLE = {"keep": "bold green", "discard": "dim", "crash": "red", "timeout": "red"}
"""By the first word of the outcome. The baseline is none of them: it beat nothing."""


class DemoView:
    """Follows one tag over HTTP."""

    def __init__(self, http: LabHttp, tag: str, runs: int) -> None:
        self.tag = tag
        self.finished = 0
        self._http = http
        self._told: set[str] = set()
        self._trusted: dict[str, str | None] = {}
        self.bar = bar(MofNCompleteColumn(), stays=True)
        self._task = self.bar.add_task("training", total=runs + 1)  # the baseline

    def update(self) -> None:
        """Print the experiments that have finished since the last call; show those that run."""
        page = self._history()
        experiments = page["experiments"]
        for e in experiments:
            if e["status"] in FINISHED and e["id"] not in self._told:
                self._told.add(e["id"])
                self.finished += 1
                digits = digits_of(self._http, self.tag)
                self.bar.console.print(line(e, page["gains"].get(e["id"]), digits), highlight=False)
            if e["trust"] in VERDICTS and self._trusted.get(e["id"]) == "provisional":
                self.bar.console.print(f"{e['id']:>9}  {VERDICTS[e['trust']]}", highlight=False)
            self._trusted[e["id"]] = e["trust"]
        running = [
            f"{e['id']} {e['last_progress'] or 0:.0%}" for e in experiments if e["status"] == "running"
        ]
        described = ", ".join(running) or "thinking"
        self.bar.update(self._task, completed=self.finished, description=described)

    def retests_are_open(self) -> bool:
        """Whether a retest still has to run or to be judged."""
        stats = self._http.ask("POST", "/api/report/summary", {"tag": self.tag})["stats"]
        waits = any(
            e["status"] == "keep" and e["trust"] == "provisional" for e in self._history()["experiments"]
        )
        return bool(waits or stats["running"] + stats["queued"])

    def results(self, data: Path, project: Path) -> None:
        """Print the table, the result and the next commands; write report.md with its plot, and results.tsv."""
        night = self._http.ask("POST", "/api/report/night", {"tag": self.tag, "picture": "progress.png"})
        page = self._history()
        experiments = [e for e in page["experiments"] if e["status"] in FINISHED]
        folder = data / "results" / self.tag
        folder.mkdir(parents=True, exist_ok=True)
        tsv = self._http.ask("POST", "/api/report/tsv", {"tag": self.tag})["tsv"]
        (folder / "results.tsv").write_text(tsv)
        (folder / "progress.png").write_bytes(
            self._http.ask("GET", f"/api/report/progress.png?tag={self.tag}")
        )
        (folder / "report.md").write_text(night["markdown"] + "\n")
        print_runs(experiments, page["gains"], decimals(night["sigma"]))
        click.secho(f"\n{printable(night['headline'])}", bold=True)
        if night["best_experiment_id"] is not None:
            self._show_best(night["best_experiment_id"], folder)
        # not by the console, which wraps lines: wrapped commands cannot be copied
        click.echo(
            HOW_TO_GO_ON.format(data=data, project=project, folder=folder, tag=self.tag, charter=CHARTER)
        )

    def _show_best(self, name: str, folder: Path) -> None:
        found = self._http.ask("GET", f"/api/experiment/{name}")
        patch = found["diff"] or ""
        (folder / "best.diff").write_text(patch)
        by = ", measured by prepare.py" if found["experiment"]["score"] == "trusted" else ""
        click.echo(f"\nthe best, {name}{by}:")
        show_patch(patch or "(nothing: the baseline is the best)")

    def _history(self) -> dict[str, Any]:
        page: dict[str, Any] = self._http.ask(
            "POST", "/api/experiment/history", {"tag": self.tag, "limit": 1000}
        )
        return page


CHARTER = Path(__file__).parents[2] / "program.md"
"""Whole path, because outside a checkout the name alone is not found."""
HOW_TO_GO_ON = as_typed("""\
files:       {folder}/report.md, progress.png, best.diff, results.tsv
go on:       ./nightjar up --data {data} --repo {project} --cpu 2
then:        NIGHTJAR_DATA={data} ./nightjar status
             NIGHTJAR_DATA={data} ./nightjar call report::brief --tag {tag}
your agent:  give it {charter}, your own repository with a train.py, and ./nightjar up in that folder
""")


def line(e: dict[str, Any], gain: float | None, digits: int = DECIMALS) -> str:
    """One finished experiment, as a line with rich's markup."""
    value = f"{e['val_bpb']:.{digits}f}" if e["val_bpb"] is not None else "-" * 8
    change = f" ({signed(gain, digits)})" if gain is not None else ""  # above zero is better
    said = outcome(e)
    return (
        f"[{STYLE.get(said.partition(',')[0], 'bold')}]{e['id']:>9}  {said:<19}{value}{change}[/]"
        f"  {e['agent'] or ''}: {escape(e['description'])}"
    )


def escape(text: str) -> str:
    """An agent's text without markup."""
    return markup.escape(printable(text))
