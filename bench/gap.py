"""Times the gap between two runs of a slot, the answers of two commands, and the start of a lab.

    .venv/bin/python -P -m bench.gap

A lab with the default settings and one CPU slot (`./nightjar up`) trains a script that does nothing. Many runs wait
in the queue, so each gap is Nightjar's own time. Each gap is measured twice. The first time goes from the event
`experiment.finished` to the next `experiment.started` of the slot, by Redis' clock. The second goes from the last
line of one script to the first line of the next, and includes the start of its Python. The second tag judges its
results by its noise, measured from repeats.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import Any

import click
from rich.table import Table

from bench._report import Bench
from tests.journeys.running import BY_DEFAULT, RunningLab, running_lab

ROOT = Path(__file__).parents[1]
STARTS = 3
CALLS = 30
GAP_S, CALL_S, READY_S = 0.1, 0.3, 3.0
"""Targets in seconds: median gap between two runs, a command minus an empty Python, start of a lab."""

NO_OP = """
import os, time

BEGAN = time.time()
VALUE = 1.0

noise = int.from_bytes(os.urandom(2), "big") / 65536 * 1e-3
print(f"---\\nval_bpb: {VALUE + noise}\\nbegan: {BEGAN}\\nended: {time.time()}")
"""


@dataclass
class Measure:
    """One row: seconds of each repeat, and the target of their median."""

    what: str
    most: float | None = None
    seconds: list[float] = field(default_factory=list)

    @property
    def p50(self) -> float:
        return median(self.seconds)

    @property
    def p99(self) -> float:
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(len(self.seconds) * 0.99))]

    @property
    def is_missed(self) -> bool:
        return self.most is not None and self.p50 > self.most


def ready(lab: RunningLab) -> Measure:
    """Time the start of `up` several times; the last one keeps running."""
    found = Measure("up to ready", READY_S)
    for nth in range(STARTS):
        if nth:
            lab.stop()
        begun = time.monotonic()
        lab.start()
        found.seconds.append(time.monotonic() - begun)
    return found


def gaps(lab: RunningLab, tag: str, runs: int) -> list[Measure]:
    """Measure the gaps between runs of a tag that all wait in the queue."""
    names = [lab.submit(tag, config_delta={"VALUE": 2.0 + nth / 1000}) for nth in range(runs)]
    lab.until(lambda: lab.get("pool/list")["idle"] == 1 and finished(lab, names), f"{tag} has trained", 1.0)
    times = {kind: moments(lab, tag, kind) for kind in ("queued", "started", "finished")}
    ours = Measure(f"finished -> next started, {tag}", GAP_S)
    scripts = Measure(f"script ended -> next began, {tag}")
    metrics = {name: lab.get(f"experiment/{name}")["experiment"]["metrics"] for name in names}
    for one, other in pairwise(sorted(names, key=times["started"].__getitem__)):
        if times["queued"][other] < times["finished"][one]:
            ours.seconds.append(times["started"][other] - times["finished"][one])
            scripts.seconds.append(metrics[other]["began"] - metrics[one]["ended"])
    return [ours, scripts]


def finished(lab: RunningLab, names: Sequence[str]) -> bool:
    return all(lab.get(f"experiment/{name}")["experiment"]["status"] == "discard" for name in names)


def moments(lab: RunningLab, tag: str, kind: str) -> dict[str, float]:
    """The time of this event of each experiment, in seconds."""
    events = lab.post("event/list", tag=tag, types=[f"experiment.{kind}"], limit=500)["events"]
    return {e["subject"]: int(e["id"].partition("-")[0]) / 1e3 for e in events}


def learn_noise(lab: RunningLab, tag: str) -> None:
    """Open a tag, train its baseline, and wait for its repeats."""
    lab.setup(tag, keep_rule="confirmed")
    lab.submit(tag)

    def known() -> Any:
        summary = lab.post("report/summary", tag=tag)
        return summary["noise"] and summary["stats"]["running"] + summary["stats"]["queued"] == 0

    lab.until(known, "the noise is known")
    lab.until_idle()


def called(lab: RunningLab, tag: str) -> list[Measure]:
    """Wall and CPU seconds of two commands, minus those of an empty Python, which are shown too."""
    commands = [["./nightjar", "status"], ["./nightjar", "call", "experiment::best", "--tag", tag]]
    nothing = [Measure("python3 -c pass"), Measure("python3 -c pass, CPU")]
    beyond = [
        [Measure(f"{' '.join(words[:3])}, beyond python3 -c pass{which}", CALL_S) for which in ("", ", CPU")]
        for words in commands
    ]
    for _ in range(CALLS):
        empty = timed([shutil.which("python3") or "python3", "-c", "pass"])
        for measure, seconds in zip(nothing, empty, strict=True):
            measure.seconds.append(seconds)
        for words, measures in zip(commands, beyond, strict=True):
            whole = timed([*words[:2], "--data", str(lab.data), *words[2:]])
            for measure, seconds, least in zip(measures, whole, empty, strict=True):
                measure.seconds.append(seconds - least)
    return [*chain(*beyond), *nothing]


def timed(command: Sequence[str]) -> tuple[float, float]:
    """Wall seconds of a command, and its CPU seconds with those of its children."""
    begun, before = time.monotonic(), getrusage(RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.monotonic() - begun, getrusage(RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, spent


def measured(folder: Path, runs: int) -> list[Measure]:
    with running_lab(folder / "lab", BY_DEFAULT) as lab:
        lab.base = lab.commit({"train.py": NO_OP})
        found = [ready(lab)]
        lab.setup("plain", keep_rule="strict")
        lab.submit("plain")
        found += gaps(lab, "plain", runs)
        learn_noise(lab, "confirmed")
        found += gaps(lab, "confirmed", runs)
        found += called(lab, "plain")
    return found


def show(found: Sequence[Measure], bench: Bench) -> None:
    table = Table("measure", "times", "p50 ms", "p99 ms", "target, p50 ms", "")
    for its in found:
        target = "" if its.most is None else f"<= {its.most * 1e3:.0f}"
        verdict = bench.verdict(None if its.most is None else not its.is_missed, its.what)
        times = (f"{its.p50 * 1e3:.0f}", f"{its.p99 * 1e3:.0f}")
        table.add_row(its.what, str(len(its.seconds)), *times, target, verdict)
    bench.console.print(table)


@click.command()
@click.option("--runs", default=30, show_default=True, type=click.IntRange(3), help="of each tag")
def main(runs: int) -> None:
    """Measure a lab's own time; exits with 1 if a target is missed."""
    bench = Bench()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found = measured(Path(folder), runs)
    show(found, bench)
    bench.end()


if __name__ == "__main__":
    main()
