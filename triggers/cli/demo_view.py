"""What the demo shows: progress, then the table, the files and the next commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich import markup
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from state.program import as_typed
from triggers.cli.lab_http import LabHttp
from triggers.cli.output import printable, show_patch
from triggers.cli.runs import print_runs, signed

FINISHED = ("keep", "discard", "crash", "timeout")
VERDICTS = {
    "confirmed": "[bold green]confirmed[/] by a second run on another seed",
    "demoted": "[red]demoted[/]: runs on another seed did not bear it out",
}
STYLE = {"keep": "bold green", "discard": "dim", "crash": "red", "timeout": "red"}


class DemoView:
    """Follows one tag over HTTP."""

    def __init__(self, http: LabHttp, tag: str, runs: int) -> None:
        self.tag = tag
        self.finished = 0
        self._http = http
        self._runs = runs
        self._told: set[str] = set()
        self._trusted: dict[str, str | None] = {}
        self._console = Console(stderr=True, soft_wrap=True, emoji=False)
        self._bar: tuple[Progress, Any] | None = None

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show a progress bar, on a terminal only."""
        if not self._console.is_terminal:
            yield
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console) as progress:
            self._bar = (progress, progress.add_task("training", total=self._runs + 1))  # the baseline
            yield
        self._bar = None

    def update(self) -> None:
        """Print the experiments that have finished since the last call; show those that run."""
        page = self._history()
        experiments = page["experiments"]
        for e in experiments:
            if e["status"] in FINISHED and e["id"] not in self._told:
                self._told.add(e["id"])
                self.finished += 1
                self._console.print(line(e, page["gains"].get(e["id"])), highlight=False)
            if e["trust"] in VERDICTS and self._trusted.get(e["id"]) == "provisional":
                self._console.print(f"{e['id']:>9}  {VERDICTS[e['trust']]}", highlight=False)
            self._trusted[e["id"]] = e["trust"]
        if self._bar is not None:
            progress, task = self._bar
            running = [
                f"{e['id']} {e['last_progress'] or 0:.0%}" for e in experiments if e["status"] == "running"
            ]
            progress.update(task, completed=self.finished, description=", ".join(running) or "thinking")

    def retests_are_open(self) -> bool:
        """Whether a retest still has to run or to be judged."""
        stats = self._http.ask("POST", "/api/report/summary", {"tag": self.tag})["stats"]
        waits = any(
            e["status"] == "keep" and e["trust"] == "provisional" for e in self._history()["experiments"]
        )
        return bool(waits or stats["running"] + stats["queued"])

    def results(self, data: Path, project: Path) -> None:
        """Print the table, what came of it and the next commands; write report.md with its plot, and results.tsv."""
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
        print_runs(experiments, page["gains"])
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
"""Outside a checkout nobody finds it by its name."""
HOW_TO_GO_ON = as_typed("""\
files:       {folder}/report.md, progress.png, best.diff, results.tsv
go on:       ./nightjar up --data {data} --repo {project} --cpu 2
then:        NIGHTJAR_DATA={data} ./nightjar status
             NIGHTJAR_DATA={data} ./nightjar call report::brief --tag {tag}
your agent:  give it {charter}, your own repository with a train.py, and ./nightjar up in that folder
""")


def line(e: dict[str, Any], gain: float | None) -> str:
    """One finished experiment, as a line with rich's markup."""
    value = f"{e['val_bpb']:.6f}" if e["val_bpb"] is not None else "-" * 8
    change = f" ({signed(gain)})" if gain is not None else ""  # above zero is better
    return (
        f"[{STYLE[e['status']]}]{e['id']:>9}  {e['status']:<8}{value}{change}[/]"
        f"  {e['agent'] or ''}: {escape(e['description'])}"
    )


def escape(text: str) -> str:
    """Text of an agent, in which nothing is markup."""
    return markup.escape(printable(text))
