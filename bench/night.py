"""A night on the example project that ends in evidence, by the commands that a user types.

    .venv/bin/python -P -m bench.night --into night

Two scripted agents try ideas in a tag with a hidden split, a test split, guards and confirmed keeps. Then `distil`
finds the smallest patch with the same score. `certify` runs the best beside the baseline, and the `verify.py` of a
fresh clone checks the certificate. Hidden and test text are Nightjar's own Python source. Reports, pictures and the
certificate are left in the folder. The times include all that runs beside it on this machine.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from bench._report import Bench
from state.settings import Settings
from triggers.cli.demo import EVALUATOR, ROOT, make_project
from triggers.ports import free_port

TAG = "night"
LOOK_S = 5.0
MOST_MB, LARGEST_M = 400, 0.1
"""Guards: peak memory, and million parameters of the model."""
MIN_GAIN = 0.1
"""Margin of the certificate, in bits per byte."""
MOST_RETESTS = 4
WAITED = (0, 3)
"""Exit codes of `wait`: it was kept, or is no new best."""


class Night:
    """The lab in its folder, asked by commands."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.project = make_project(folder / "project")
        self.hidden = folder / "hidden"
        self.hidden.mkdir()
        for split, room in (("hidden", "functions"), ("test", "triggers")):
            sources = sorted((ROOT / room).rglob("*.py"))
            (self.hidden / f"{split}.bin").write_bytes(
                b"".join(each.read_bytes() for each in sources)[:500_000]
            )

    def run(self, *words: str, is_good: Sequence[int] = (0,)) -> str:
        """What a command printed. Raises RuntimeError: it failed."""
        if words[0] != "call":
            click.echo(f"$ nightjar {' '.join(words)}", err=True)
        done = subprocess.run(
            [ROOT / "nightjar", words[0], "--data", self.data, *words[1:]],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode not in is_good:
            raise RuntimeError(f"{words[0]} exited with {done.returncode}")
        return done.stdout

    def call(self, function: str, **fields: str) -> Any:
        """The answer of a function; its fields are texts."""
        words = [word for name, value in fields.items() for word in (f"--{name}", value)]
        return json.loads(self.run("call", function, *words))

    @contextlib.contextmanager
    def lab(self, slots: int) -> Iterator[None]:
        """`nightjar up`, until this context ends."""
        port = free_port(Settings().port)
        words = ("--repo", self.project, "--cpu", slots, "--hidden-data", self.hidden, "--port", port)
        with (self.folder / "up.log").open("w") as log:
            up = subprocess.Popen(
                [ROOT / "nightjar", "up", "--data", self.data, *map(str, words)], stdout=log, stderr=log
            )
        try:
            while "ready" not in (self.folder / "up.log").read_text():
                if up.poll() is not None:
                    raise RuntimeError((self.folder / "up.log").read_text())
                time.sleep(0.2)
            yield
        finally:
            up.terminate()
            up.wait()

    def search(self, ideas: int, seed: int) -> None:
        """Keep two agents at work until so many ideas have begun."""
        agent = (sys.executable, ROOT / "examples" / "agent.py", "--repo", ".", "--seed", seed)
        words = ("--data", self.data, "--tag", TAG, "-n", 2, "--repo", self.project, "--", *agent)
        agents = subprocess.Popen([ROOT / "nightjar", "agent", *map(str, words)])
        try:
            while len(self.runs()) < ideas + 1:  # with the baseline
                if agents.poll() is not None:
                    raise RuntimeError(f"the agents ended with {agents.returncode}")
                time.sleep(LOOK_S)
        finally:
            agents.send_signal(signal.SIGINT)
            agents.wait()

    def runs(self, *, wait: bool = False) -> list[dict[str, Any]]:
        """All experiments; on request once no run and no keep is open."""
        while True:
            found: list[dict[str, Any]] = self.call("experiment::history", tag=TAG, limit="1000")[
                "experiments"
            ]
            open_ones = [
                e for e in found if e["status"] in ("queued", "running") or e["trust"] == "provisional"
            ]
            if not wait or not open_ones:
                return found
            time.sleep(LOOK_S)

    def report(self) -> Any:
        return self.call("report::night", tag=TAG)

    def show_the_best(self) -> int:
        """Retest the best and the last keep that holds, as the report says; answers how often."""
        tries = 0
        while tries < MOST_RETESTS and (found := self.report())["best_experiment_id"] not in found["holds"]:
            best, tries = found["best_experiment_id"], tries + 1
            for one in (best, found["holds"][-1] if found["holds"] else found["baseline"]):
                asked = json.loads(self.run("retest", one, "--json"))
                self.run("wait", asked["experiment_id"], is_good=WAITED)
        return tries


@click.command()
@click.option("--into", type=click.Path(path_type=Path), required=True, help="a new folder")
@click.option("--ideas", default=60, show_default=True, help="runs of both agents")
@click.option("--seconds", default=5.0, show_default=True, help="CPU seconds of each training")
@click.option("--slots", default=2, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(into: Path, ideas: int, seconds: float, slots: int, seed: int) -> None:
    """Run the night, and print what came of it."""
    into.mkdir(parents=True)
    bench, night, table = Bench(), Night(into.resolve()), Table("what", "found")
    with night.lab(slots):
        night.run(
            *("setup", TAG, "--budget", f"{seconds:g}", "--evaluator-command", EVALUATOR),
            *("--hidden-split", "--test-split", "--policy", "keep_rule=confirmed"),
            *("--policy", "guards.check=python -m py_compile train.py"),
            *("--policy", f"guards.peak_vram_mb={MOST_MB}"),
            *("--policy", f"guards.at_most={json.dumps({'num_params_M': LARGEST_M})}"),
        )
        night.search(ideas, seed)
        runs, searched = night.runs(wait=True), night.report()
        retests = night.show_the_best()
        found, best = night.report(), searched["best_experiment_id"]
        night.run("distil", TAG, "--yes")
        distilled = night.call("trust::distil", tag=TAG)["distillation"]
        night.run("certify", best, "--min-gain", f"{MIN_GAIN:g}", "-o", "certificate", is_good=(0, 3))
        gaps, ended = night.call("trust::shrinkage", tag=TAG), night.report()
        apart = night.call("report::night", tag=distilled["into"])["gpu_hours"]
        night.run("report", TAG, "-o", "report.md")
    said = verified(into)
    changes, dropped = distilled["changes"], [c for c in distilled["changes"] if c["state"] == "dropped"]
    sizes = sum(each["lines"] for each in changes), sum(each["lines"] for each in dropped)
    for what, value in (
        ("the search", searched["headline"]),
        ("refused by the hidden split", f"{sum(bool(e['hidden_refused']) for e in runs)} of {len(runs)}"),
        ("broke a guard", str(sum(e.get("guard") is not None for e in runs))),
        (f"after {retests} retests of two keeps", found["holds_said"]),
        ("gain of a keep, visible and hidden", f"{gaps['visible_gain']:.4f}, {gaps['hidden_gain']:.4f}"),
        ("gain of the best on the test split", f"{gaps['test_gain']:.4f}"),
        (
            "distilled",
            f"{len(dropped)} of {len(changes)} changes dropped, {sizes[1]} of {sizes[0]} changed lines,"
            f" loss {distilled['loss']:.4f}, sigma {distilled['noise']:.4f}",
        ),
        ("certificate", said.partition("\n")[0]),
        (
            "CPU hours: search, retests, distil, certify",
            f"{searched['gpu_hours']:.2f}, {found['gpu_hours'] - searched['gpu_hours']:.2f}, {apart:.2f},"
            f" {ended['gpu_hours'] - found['gpu_hours']:.2f}",
        ),
    ):
        table.add_row(what, value)
    bench.console.print(table)
    bench.end(f"seed {seed}, {ideas} ideas of {seconds:g} CPU seconds on {slots} slots")


def verified(into: Path) -> str:
    """What verify.py says, in a fresh clone and in the folder. The two have to agree; they use no package."""
    clone, folder = into / "clone", into / "certificate"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    environment = {"PYTHONPATH": str(clone), "PYTHONDONTWRITEBYTECODE": "1"}
    words = ((clone / "triggers/certificates/verify.py", folder), (folder / "verify.py",))
    stranger, own = (
        subprocess.check_output([sys.executable, "-S", *each], env=environment, text=True) for each in words
    )
    shutil.rmtree(clone)
    if stranger != own:
        raise RuntimeError(f"the two verify.py do not agree: {stranger}, {own}")
    return stranger


if __name__ == "__main__":
    main()
