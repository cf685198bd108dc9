"""Measures how many verdicts a busy loop on the core of one of two CPU slots turns.

    .venv/bin/python -P -m bench.contention

A lab with two CPU slots (`./nightjar up --cpu 2`) and the default policy judges real runs. Each slot is kept on a
core of its own. A run is gradient descent with numpy, and its loss falls with the steps that fit in its budget. The
budget is in seconds in which the core works for the run or for the busy loop. So on a machine with other work the
bench takes longer, and the loop disturbs as it does on a machine without.

Two agents, each with its own tag, try one idea after another on top of the best. Ideas change the learning rate and
the cost of a step. On a quiet machine the code with the larger product of learning rate and steps per second is
better. A verdict that says otherwise is flipped. It counts once its retests have ended.

The quiet lab comes first, then the same ideas beside a busy loop on the second core. Brackets hold 95 % intervals.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from bench._report import Bench, Interval, share
from tests.journeys.running import BY_DEFAULT, RunningLab, running_lab

MOST = 2.0
"""Most percent of flipped verdicts."""
CORES = (0, 1)
ARMS = ("quiet", "busy loop on one core")

TRAIN = """
import os, time
import numpy as np

LR = 0.002
WORK = 2
LOOP = None

def clock():
    loop = time.clock_gettime(~LOOP << 3 | 2) if LOOP and os.sched_getaffinity(0) == {1} else 0.0
    return time.process_time() + loop

budget, seed = float(os.environ["NIGHTJAR_BUDGET_S"]), int(os.environ.get("NIGHTJAR_SEED", 0))
rng = np.random.default_rng(seed)
spectrum = np.arange(1, 2049) ** -1.5
hessian = np.diag(spectrum[:300])
far = np.sqrt(spectrum ** -0.3)
block = np.zeros((300, 300))
steps, begun = 0, clock()
while (used := clock() - begun) < budget:
    for _ in range(WORK):
        block = hessian @ hessian
    far -= LR * spectrum * far
    steps += 1
loss = float(spectrum @ far**2)
print(f"---\\nval_bpb: {loss * (1 + 0.003 * rng.standard_normal()):.6f}\\ntraining_seconds: {used:.3f}")
print(f"num_steps: {steps}")
"""
IDEAS = ((1.6, 1), (0.6, 1), (1.6, 1), (1.0, 2), (1.6, 1), (0.6, 1), (3.5, 2), (0.6, 1))
"""Factors of the learning rate and of the cost of a step, as the agents try them."""


@dataclass
class Arm:
    """Verdicts and runs of one lab."""

    ideas: int = 0
    flipped: list[str] = field(default_factory=list)
    runs: int = 0
    contended: int = 0
    noise: list[float] = field(default_factory=list)
    """Steps per second of further runs, divided by those of the first run of their code."""
    seconds: float = 0.0

    @property
    def share(self) -> Interval:
        return share(len(self.flipped), self.ideas)


@contextmanager
def busy(core: int) -> Iterator[int]:
    """A busy loop on this core; its process."""
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    os.sched_setaffinity(loop.pid, {core})
    try:
        yield loop.pid
    finally:
        loop.kill()
        loop.wait()


def pinned(lab: RunningLab) -> bool:
    """Keep each slot's processes on one core; what they start stays there."""
    for core in CORES:
        for process in lab.processes("workers.", f':cpu{core}"'):
            os.sched_setaffinity(process.pid, {core})
    return True


def quality(constants: dict[str, Any]) -> float:
    """What the loss falls with: the learning rate by the cost of a step."""
    return float(constants["LR"] / constants["WORK"])


def one_agent(lab: RunningLab, tag: str, rounds: int, arm: Arm, lock: threading.Lock) -> None:
    lab.post("experiment/setup", tag=tag, base_commit=lab.base, policy={"budgets.base_s": BUDGET_S})
    best = {"LR": 0.002, "WORK": 2}
    known = {}
    for nth in range(rounds * len(IDEAS)):
        rate, cost = IDEAS[nth % len(IDEAS)]
        tried = {"LR": best["LR"] * rate, "WORK": best["WORK"] * cost}
        if tried["WORK"] > 8:
            continue
        name = lab.submit(tag, config_delta=tried)
        known[name] = tried
        verdict = lab.until(partial(settled, lab, tag, name), f"{name} is judged", 0.3)
        is_better = quality(tried) > quality(best) * 1.05
        with lock:
            arm.ideas += 1
            if (verdict == "keep") != is_better:
                arm.flipped.append(f"{name} {rate}/{cost} {verdict}")
        standing = lab.post("experiment/best", tag=tag)["best"]["experiment_id"]
        best = known.get(standing, {"LR": 0.002, "WORK": 2})


def settled(lab: RunningLab, tag: str, name: str) -> str | None:
    """The verdict on an experiment once no run of its tag is open and its events were handled."""
    e = lab.get(f"experiment/{name}")["experiment"]
    if e["status"] not in ("keep", "discard") or e["trust"] == "provisional":
        if e["status"] in ("crash", "timeout", "invalid", "lost"):
            raise click.ClickException(f"{name}: {e['status']} {e['error']}")
        return None
    stats = lab.post("report/summary", tag=tag)["stats"]
    return None if stats["running"] + stats["queued"] else str(e["status"])


def night(folder: Path, rounds: int, arm: Arm, loop: int | None = None) -> None:
    """Two agents at once in a lab of two pinned slots, beside this busy loop."""
    with running_lab(folder, BY_DEFAULT) as lab:
        lab.base = lab.commit({"train.py": TRAIN.replace("LOOP = None", f"LOOP = {loop}")})
        lab.start("--cpu", str(len(CORES)), "--isolation", "limits")  # others hide the loop's clock
        lab.until(partial(pinned, lab), "each slot has its core")
        begun, lock = time.monotonic(), threading.Lock()
        tags = [f"agent{n}" for n in CORES]
        with ThreadPoolExecutor() as agents:
            list(agents.map(lambda tag: one_agent(lab, tag, rounds, arm, lock), tags))
        arm.seconds += time.monotonic() - begun
        for tag in tags:
            count(lab, tag, arm)


def count(lab: RunningLab, tag: str, arm: Arm) -> None:
    """The runs of a tag, and the noise of their steps per second."""
    for row in lab.post("experiment/history", tag=tag, limit=1000)["experiments"]:
        shown = [lab.get(f"experiment/{row['id']}")]
        shown += [lab.get(f"experiment/{again['retest_id']}") for again in shown[0]["retests"]]
        runs = [each["experiment"] for each in shown]
        arm.runs += sum(len(each["attempts"]) for each in shown)
        arm.contended += sum(bool(run.get("contended")) for run in runs)
        paces = [run["num_steps"] / run["training_seconds"] for run in runs if run["num_steps"]]
        arm.noise += [pace / paces[0] for pace in paces[1:]]


BUDGET_S = 1.5


@click.command()
@click.option("--nights", default=2, show_default=True, help="labs of each kind")
@click.option("--rounds", default=1, show_default=True, help="times that each agent tries the ideas")
def main(nights: int, rounds: int) -> None:
    """Measure flipped verdicts; exits with 1 if the bound is missed."""
    bench = Bench()
    arms = {name: Arm() for name in ARMS}
    for nth in range(nights):
        for name, arm in arms.items():
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                if name == ARMS[0]:
                    night(Path(folder) / "lab", rounds, arm)
                else:
                    with busy(CORES[1]) as loop:
                        night(Path(folder) / "lab", rounds, arm, loop)
            print(f"night {nth + 1}, {name}: {arm}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    table = Table("lab", "verdicts", "flipped", "bound", "runs", "contended", "sd of steps/s", "seconds")
    for name, arm in arms.items():
        is_hit = arm.share.found <= MOST
        spread = f"{100 * statistics.pstdev(arm.noise):.1f} %" if arm.noise else ""
        flipped = bench.marked(f"{arm.share:.1f} %", is_hit, f"{name}: {arm.share:.1f} %")
        row = (str(arm.ideas), flipped, f"<= {MOST:g} %", str(arm.runs), str(arm.contended), spread)
        table.add_row(name, *row, f"{arm.seconds:.0f}")
    bench.console.print(table)
    bench.end(f"{nights} nights of two agents, runs of {BUDGET_S:g} s")


if __name__ == "__main__":
    main()
