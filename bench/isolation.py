"""Compares how fast a real training runs in the isolation that workers choose, and in none.

    .venv/bin/python -P -m bench.isolation

The example project trains for real, in pairs of runs, one in each tier. The order within a pair alternates. The
length of a run is given in CPU seconds, so that other work on the machine matters little.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import get_args

import click
from rich.table import Table

from bench._report import Bench
from functions.kernel.process.remote import Isolation
from state.settings import Settings
from tests.workers.watching import Orders
from triggers.cli.demo import make_project
from workers.attempt.isolation import Tier, chosen, described
from workers.attempt.job import TrainedRun, TrainingJob
from workers.attempt.runner import TrainingRunner
from workers.attempt.source import git
from workers.slot import Device, HealthSampler, Slot

LEAST = 0.97
"""Lowest ratio of the steps to those without isolation."""
SLOT = Device("bench:cpu0", index=0, name="cpu", vram_mb=0, uuid=None, driver=None, kind="cpu")


@dataclass
class TierRuns:
    """What the runs of one tier did."""

    tier: Tier
    steps: list[float] = field(default_factory=list)
    around_s: list[float] = field(default_factory=list)
    """Wall seconds of an attempt minus those that the script reports."""


async def run(runs: TierRuns, folder: Path, commit: str, seconds: float, nth: int) -> None:
    """Train once."""
    slot = Slot.model_validate(
        {"repo": folder / "project", "device": SLOT, "python": sys.executable, "tier": runs.tier}
    )
    settings = Settings.model_validate({"data": folder / "data"})
    runner = TrainingRunner(slot, settings, lab_identity="bench", sampler=HealthSampler())
    job = TrainingJob(
        experiment_id=f"bench-{nth}",
        attempt=1,
        fence=nth,
        commit_sha=commit,
        base_commit=commit,
        patch=None,
        config_delta=None,
        evaluator="prepare.py",
        budget_s=seconds,
        timeout_s=60 + 20 * seconds,
    )
    began = time.monotonic()
    result = await runner.run(job, Orders(), metric="val_bpb")
    if not isinstance(result, TrainedRun):
        raise click.ClickException(f"a run failed: {result}")
    took = time.monotonic() - began
    runs.steps.append(result.metrics["num_steps"])
    runs.around_s.append(took - result.metrics["total_seconds"])


async def compare(tier: Tier, pairs: int, seconds: float) -> tuple[TierRuns, TierRuns]:
    """The runs of no tier, and of this one."""
    none, strongest = TierRuns("none"), TierRuns(tier)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project = make_project(folder / "project")
        commit = (await git(project, "rev-parse", "HEAD")).decode().strip()
        for nth in range(pairs):
            order = (none, strongest) if nth % 2 else (strongest, none)
            for place, runs in enumerate(order):
                await run(runs, folder, commit, seconds, 2 * nth + place + 1)
            print(f"{nth + 1} of {pairs} pairs", file=sys.stderr)
    return none, strongest


@click.command()
@click.option(
    "--isolation",
    type=click.Choice(get_args(Isolation)),
    default="auto",
    help="the tier (default: the strongest that works here)",
)
@click.option("--pairs", type=click.IntRange(1), default=7, show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(1), default=4.0, show_default=True, help="CPU seconds of each training"
)
def main(isolation: Isolation, pairs: int, seconds: float) -> None:
    """Compare the speed of a training; exits with 1 if isolation costs more than it may."""
    bench = Bench()
    none, strongest = asyncio.run(compare(chosen(isolation).tier, pairs, seconds))
    ratio = median(ours / free for ours, free in zip(strongest.steps, none.steps, strict=True))
    added_s = median(ours - free for ours, free in zip(strongest.around_s, none.around_s, strict=True))
    table = Table("tier", "steps, p50", "seconds around the script, p50")
    for runs in (none, strongest):
        table.add_row(described(runs.tier), f"{median(runs.steps):.0f}", f"{median(runs.around_s):.3f}")
    bench.console.print(table)
    bench.console.print(f"paired ratio of the steps, median of {pairs}: {ratio:.3f} (at least {LEAST})")
    bench.console.print(f"added around a script, median of the pairs: {added_s * 1000:.0f} ms")
    if ratio < LEAST:
        bench.missed.append(f"{ratio:.3f} of the steps, at least {LEAST}")
    bench.end()


if __name__ == "__main__":
    main()
