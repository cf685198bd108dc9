"""Measures the hidden split: false promotions that it refuses, honest gains that it lets pass, and its cost.

    .venv/bin/python -P -m bench.hidden

Simulated tags decide by the rules of a lab under the keep rule `confirmed`, with the baseline and its two further
runs. Sigma is one run's standard deviation, the same on both splits. A new tag knows the noise from these runs alone,
an older one from 12 further repeats. An agent makes 200 changes without an effect, runs each once on the visible
split, and submits the best. A change may fit the visible data by chance: that part stays on every seed (its standard
deviation is one sigma), and is not there on the hidden split. An honest change gains the same on both. `kept by the
visible split alone` is the same lab without a hidden split.

In a whole night the agent has the lab judge all 200 of them, and builds on what is kept.

The cost is that of scoring real attempts of the example project, in turns. One has the visible split alone, one a
hidden split of the same size, too, and one also the command of a guard. Scoring takes as long after a short
training as after a long one. So trainings are short, and the seconds of their scoring are put beside a run of 60 s.
The project's budget is in CPU seconds, so that other
work on the machine matters little, and so is the share. Brackets hold 95 % intervals.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
import numpy as np
from rich.table import Table

from bench._report import Bench, share
from functions.experiments.rules.keeping import KEEP_RULES, SURE_SIGMAS, SeedScores, is_confirmed
from functions.trust.rules.hidden import HiddenRuns, is_behind, is_unshown
from functions.trust.rules.noise import cautious, pooled
from state.facts import Noise, Spread
from state.records import TimeSpent
from state.settings import Settings
from tests.workers.watching import Orders
from triggers.cli.demo import make_project
from workers.attempt import runner as runner_module
from workers.attempt.child import EndedCommand, RunCommand, RunTiming, run_command
from workers.attempt.isolation import chosen
from workers.attempt.job import TrainedRun, TrainingJob, Watcher
from workers.attempt.runner import TrainingRunner
from workers.attempt.source import git
from workers.slot import Device, HealthSampler, Slot

CHANGES, FIT, REPEATS = 200, 1.0, 2
MOST_S = 6.0
"""A tenth of a run of 60 s."""
SLOT = Device("bench:cpu0", index=0, name="cpu", vram_mb=0, uuid=None, driver=None, kind="cpu")


@dataclass
class Code:
    """A change: its effects on both splits, and its runs there."""

    name: str
    visible: float
    hidden: float
    seen: list[float]
    unseen: list[float]

    def run(self, rng: np.random.Generator) -> None:
        self.seen.append(self.visible + float(rng.standard_normal()))
        self.unseen.append(self.hidden + float(rng.standard_normal()))


class SimulatedTag:
    """One tag under the rule `confirmed`: lower is better, sigma is 1."""

    def __init__(self, rng: np.random.Generator, df: int, *, is_hidden: bool = True) -> None:
        self._rng, self._df, self._is_hidden = rng, df, is_hidden
        squares = [float(rng.chisquare(df)) if df else 0.0 for _ in range(2)]
        self._visible_squares = squares[0]
        self.known = HiddenRuns(Spread(df, squares[1]), {})
        self._groups: list[list[float]] = []
        self.best = Code("baseline", 0.0, 0.0, [], [])
        for _ in range(1 + REPEATS):
            self.best.run(rng)
            self._tell(self.best)
        self._groups.append(self.best.seen)

    def keeps(self, change: Code) -> bool:
        """Whether the change, which has run once, is kept for good."""
        self._tell(change)
        visible = self._noise()
        sigma = cautious(visible, SURE_SIGMAS) if visible else None
        best, first = _scores(self.best), _scores(change, 1)
        if KEEP_RULES["confirmed"](first, best, sigma, None) == "discard":
            return False
        incumbent = self.known.mean(self.best.name)
        assert incumbent is not None
        if self._is_hidden and is_behind(self.known.mean(change.name), incumbent, "minimize"):
            return False
        change.run(self._rng)
        self._tell(change)
        self._groups.append(change.seen)
        visible = self._noise()
        if not is_confirmed(_scores(change), best, visible.sigma if visible else None):
            return False
        noise = self.known.sums.noise
        if self._is_hidden and is_unshown(self.known.mean(change.name), incumbent, noise, "minimize"):
            return False
        self.best = change
        return True

    def _tell(self, code: Code) -> None:
        nth = len(code.unseen)
        self.known = self.known.with_run(code.name, f"{code.name}.{nth}", code.unseen[-1])

    def _noise(self) -> Noise | None:
        own = pooled(self._groups)
        df = self._df + (own.df if own else 0)
        squares = self._visible_squares + (own.sigma**2 * own.df if own else 0.0)
        return Noise((squares / df) ** 0.5, df) if df else None


def _scores(code: Code, runs: int | None = None) -> SeedScores:
    return SeedScores(code.name, code.seen[0], tuple(code.seen[1:runs]))


def best_of(rng: np.random.Generator, changes: int = CHANGES) -> Code:
    """The change that looks best on the visible split, of many without an effect; it has run once."""
    fits = FIT * rng.standard_normal(changes)
    runs = fits + rng.standard_normal(changes)
    at = int(runs.argmin())
    return Code("best", float(fits[at]), 0.0, [float(runs[at])], [float(rng.standard_normal())])


def honest(rng: np.random.Generator, gain: float) -> Code:
    found = Code("honest", -gain, -gain, [], [])
    found.run(rng)
    return found


def promotions(
    rng: np.random.Generator, tags: int, df: int, gain: float | None, *, is_hidden: bool = True
) -> int:
    """Tags that keep the agent's change: the best of many without an effect, or an honest one."""
    return sum(
        SimulatedTag(rng, df, is_hidden=is_hidden).keeps(best_of(rng) if gain is None else honest(rng, gain))
        for _ in range(tags)
    )


def false_keeps(rng: np.random.Generator, df: int, *, is_hidden: bool) -> int:
    """Keeps of one night of changes without an effect that the lab judges all."""
    tag, kept = SimulatedTag(rng, df, is_hidden=is_hidden), 0
    for nth in range(CHANGES):
        change = Code(f"n{nth}", FIT * float(rng.standard_normal()), 0.0, [], [])
        change.run(rng)
        kept += tag.keeps(change)
    return kept


ARMS = ("trusted score", "trusted score with a hidden split", "the same and a guard's command")
CHECK = "python -m py_compile train.py"


async def scorings(folder: Path, rounds: int, seconds: float) -> dict[str, list[TimeSpent]]:
    """Times that attempts take beside their training, in turns."""
    spent: list[TimeSpent] = []

    async def timed(command: RunCommand, watcher: Watcher, pace: RunTiming) -> EndedCommand:
        ended = await run_command(command, watcher, pace)
        assert ended.time is not None
        spent.append(ended.time)
        return ended

    runner_module.run_command = timed  # type: ignore[attr-defined]  # a runner does not tell the time of its scoring
    project, hidden = make_project(folder / "project"), folder / "hidden"
    hidden.mkdir()
    (hidden / "hidden.bin").write_bytes(
        np.random.default_rng(0).integers(0, 256, 500_000, np.uint8).tobytes()
    )
    commit = (await git(project, "rev-parse", "HEAD")).decode().strip()
    slot = Slot(
        repo=project,
        device=SLOT,
        python=Path(sys.executable),
        tier=chosen("auto").tier,
        hidden_data=hidden,
    )
    settings = Settings.model_validate({"data": folder / "data"})
    runner = TrainingRunner(slot, settings, lab_identity="bench", sampler=HealthSampler())
    took: dict[str, list[TimeSpent]] = {arm: [] for arm in ARMS}
    for nth in range(rounds * len(ARMS)):
        arm = ARMS[(nth + nth // len(ARMS)) % len(ARMS)]
        job = TrainingJob(
            experiment_id=f"bench-{nth}",
            attempt=1,
            fence=nth + 1,
            commit_sha=commit,
            base_commit=commit,
            patch=None,
            config_delta=None,
            evaluator="prepare.py",
            evaluator_command="python prepare.py",
            splits=["hidden"] if arm != ARMS[0] else [],
            check=CHECK if "guard" in arm else None,
            budget_s=seconds,
            timeout_s=600,
        )
        spent.clear()
        result = await runner.run(job, Orders(), metric="val_bpb")
        if not isinstance(result, TrainedRun) or bool(result.hidden) != bool(job.splits):
            raise click.ClickException(f"a run failed: {result}")
        *checks, _, scoring = spent
        took[arm].append(
            TimeSpent(
                wall_seconds=sum((each.wall_seconds for each in checks), scoring.wall_seconds),
                cpu_seconds=sum((each.cpu_seconds or 0.0 for each in checks), scoring.cpu_seconds or 0.0),
            )
        )
        print(f"{nth + 1} of {rounds * len(ARMS)}: {arm}, {took[arm][-1]}", file=sys.stderr)
    return took


@click.command()
@click.option("--tags", default=2000, show_default=True, help="simulated tags for each row")
@click.option("--nights", default=100, show_default=True)
@click.option("--rounds", default=5, show_default=True, help="rounds of real attempts; 0: none")
@click.option("--seconds", default=8.0, show_default=True, help="CPU seconds of each training")
@click.option("--seed", default=0, show_default=True)
def main(tags: int, nights: int, rounds: int, seconds: float, seed: int) -> None:
    """Measure the hidden split; exits with 1 if a bound is missed."""
    bench, rng = Bench(), np.random.default_rng(seed)
    table = Table("measure", "new tag", "after 12 repeats", "bound")

    def row(what: str, hits: Sequence[int], *, least: float | None = None) -> None:
        found = [share(n, tags) for n in hits]
        texts = [f"{each:.1f} %" for each in found]
        is_hit = least is None or min(each.found for each in found) >= least
        asked = "" if least is None else f">= {least:g} %"
        table.add_row(what, texts[0], bench.marked(texts[1], is_hit, what), asked)

    fooled = [promotions(rng, tags, df, None, is_hidden=False) for df in (0, 12)]
    row("best of 200 without an effect, kept by the visible split alone", fooled)
    refused = [tags - promotions(rng, tags, df, None) for df in (0, 12)]
    row("best of 200 without an effect, refused", refused, least=95)
    for gain in (2, 3, 4, 5, 6, 8):
        kept = [promotions(rng, tags, df, gain) for df in (0, 12)]
        row(f"honest gain of {gain} sigma, kept", kept, least=95 if gain == 6 else None)
    for is_hidden in (False, True):
        means = [
            f"{np.mean([false_keeps(rng, df, is_hidden=is_hidden) for _ in range(nights)]):.2f}"
            for df in (0, 12)
        ]
        table.add_row(
            f"false keeps of a night of 200, {'with' if is_hidden else 'without'} a hidden split", *means
        )
    bench.console.print(table)
    if rounds:
        with tempfile.TemporaryDirectory() as name:
            took = asyncio.run(scorings(Path(name), rounds, seconds))
        cost = Table(
            "beside the training", "CPU seconds, p50", "wall seconds, p50", "CPU, of a run of 60 s", "bound"
        )
        for arm in ARMS:
            cpu_s = median(each.cpu_seconds or 0.0 for each in took[arm])
            wall_s, is_last = median(each.wall_seconds for each in took[arm]), arm == ARMS[-1]
            is_hit = not is_last or cpu_s <= MOST_S
            share_of = bench.marked(f"{cpu_s / 0.6:.1f} %", is_hit, f"{arm}: {cpu_s:.2f} s")
            cost.add_row(arm, f"{cpu_s:.2f}", f"{wall_s:.2f}", share_of, "10 %" if is_last else "")
        bench.console.print(cost)
    bench.end(f"{tags} tags for each row, {nights} nights, {rounds} rounds of {seconds:g} CPU seconds")


if __name__ == "__main__":
    main()
