"""Measures how good the best config of a swarm is, compared with other search methods at equal GPU time.

    .venv/bin/python -P -m bench.search

Workers run the configs that a method proposes, 300 s each, and report on the way. `nightjar` has the defaults of a
swarm: its sampler, queue, early stopping and keep rule, by the server's own rules. `published` has the sampler, the
stopping rule and the keep rule of the published proposal. `greedy` changes one or two values of the best, with
asynchronous halving. `random`, Optuna's TPE and Nevergrad's NGOpt stop no run. DEHB, for curves alone, runs most
configs a part of the way. The last three are compared if they are installed
(`python -m pip install optuna nevergrad dehb`).

Regret: true distance of a method's answer from the best config; 1 is the median random config. The answer of
`nightjar` is the best by its keep rule, whose retests take GPU time. The answer of the others is the config with the
lowest result. Rank: mean place of a method by regret over tasks and seeds, 1 for the lowest. Brackets hold 95 %
bootstrap intervals over seeds, within the tasks.

At the end it measures the CPU time of a proposal of the default sampler, with 5,000 finished runs of 8 dimensions.

Three tasks have learning curves: digits (real trainings), and the two profiles of `./nightjar simulate`. The others
have only final values, with two dimensions that interact. `--folder` searches the tasks of a folder instead. Its
`tasks.py` has `make(name)`, the names `DEV`, and `LC`, the names of those with curves. Methods in the `REG` of its
`methods.py` can be named after `--beside`, as `folder:NAME`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from statistics import median

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import rankdata

from bench._peers import FOR_CURVES, installed, registered
from bench._report import Bench, Interval
from bench._search import (
    ANYWHERE,
    RUN_S,
    AtRandom,
    Greedy,
    MethodOf,
    Task,
    digits,
    from_folder,
    module_of,
    nightjar,
    planted,
    searched,
    simulated,
)
from functions.swarm.rules.proposals import Observation
from functions.swarm.rules.sampling import sampler_of
from functions.swarm.rules.shapes import drawn_config
from state.policy import Policy

OURS = "nightjar"
EARLY = "nightjar, early"
"""Ours before its end, compared with the others at their end."""
METHODS: Mapping[str, MethodOf] = {
    OURS: nightjar(),
    "published": nightjar(sampler="thompson", stopping__rule="stochastic", keep_rule="strict", max_retests=0),
    "greedy": Greedy,
    "random": AtRandom,
    **installed(),
}
CURVES = ("digits", "mnist", "nanochat")
ENDS = ("planted-1", "planted-2", "planted-3")
RESAMPLES = 2000
WIDE = 200
"""Width of a line outside a terminal."""
KNOWN = 5000
"""Finished runs where the cost of a proposal is measured."""
REPEATS = 15
PROPOSALS = {1: 50.0, 32: 5.0}
"""Most milliseconds for each proposal, by the number of proposals at once."""
LEAST = 1e-6
"""Added to regrets before division: they may be 0."""


@dataclass(frozen=True)
class Condition:
    """Workers, kind of tasks and budget of a comparison, with its bounds."""

    name: str
    has_curves: bool
    workers: int
    runs: int
    """Full runs that the GPU time is worth."""
    most: float
    """Highest ratio of our regret to that of the best other method."""
    crashes: float = 0.0
    early: float = 1.0
    """Share of the GPU time after which ours is compared with the others at their end."""
    is_first: bool = False
    """Whether ours must have the lowest mean rank."""


CONDITIONS = (
    Condition("8 workers, 128 runs, curves", has_curves=True, workers=8, runs=128, most=0.85, is_first=True),
    Condition("8 workers, 128 runs, ends", has_curves=False, workers=8, runs=128, most=1.0, is_first=True),
    Condition("64 workers, 256 runs, curves", has_curves=True, workers=64, runs=256, most=1.0, early=0.75),
    Condition("1 worker, 64 runs, curves", has_curves=True, workers=1, runs=64, most=1.0),
    Condition(
        "8 workers, 128 runs, curves, 10 % crashes",
        has_curves=True,
        workers=8,
        runs=128,
        most=1.0,
        crashes=0.1,
    ),
)


@dataclass(frozen=True)
class Cell:
    """One search."""

    condition: Condition
    task: str
    method: str
    seed: int
    folder: Path | None = None


@cache
def task_of(name: str, folder: Path | None) -> Task:
    if name == "digits":
        return digits()
    if name.startswith("planted-"):
        return planted(int(name.rpartition("-")[2]))
    if name in CURVES:
        return simulated(name)
    assert folder is not None
    return from_folder(folder, [name])[0]


@cache
def methods_of(folder: Path | None) -> Mapping[str, MethodOf]:
    return {**METHODS, **(registered(folder) if folder else {})}


def regrets_of(cell: Cell) -> tuple[float, float]:
    """At the end, and after the share `early` of the GPU time."""
    at, task = cell.condition, task_of(cell.task, cell.folder)
    budget = at.runs * RUN_S
    method = methods_of(cell.folder)[cell.method](task, at.workers, at.runs, cell.seed)
    search = searched(task, method, at.workers, budget, cell.seed, at.crashes)
    return search.regret(budget), search.regret(budget * at.early)


Regrets = Mapping[str, NDArray[np.float64]]
"""By method, of shape (tasks, seeds)."""


def figure(of: Callable[[Regrets], float], regrets: Regrets) -> Interval:
    """A number of the regrets; seeds are drawn anew within each task, for all methods alike."""
    rng = np.random.default_rng(0)
    shape = next(iter(regrets.values())).shape
    drawn = list[float]()
    for _ in range(RESAMPLES):
        seeds = rng.integers(shape[1], size=shape)
        drawn.append(of({name: np.take_along_axis(each, seeds, axis=1) for name, each in regrets.items()}))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(of(regrets), float(low), float(high))


def mean_of(method: str) -> Callable[[Regrets], float]:
    return lambda regrets: float(regrets[method].mean())


def rank_of(method: str) -> Callable[[Regrets], float]:
    """Its mean rank; methods that are equally good share the mean of their places."""

    def found(regrets: Regrets) -> float:
        names = [name for name in regrets if name != EARLY]
        ranks = rankdata(np.array([regrets[name] for name in names]), axis=0)
        return float(ranks[names.index(method)].mean())

    return found


def best_other(regrets: Regrets) -> str:
    return min(
        (name for name in regrets if name not in (OURS, EARLY)), key=lambda name: mean_of(name)(regrets)
    )


def ratio_to(other: str, *, early: bool = True) -> Callable[[Regrets], float]:
    """Our regret divided by that of another method at its end. `early`: our regret before the end, if compared so."""

    def found(regrets: Regrets) -> float:
        ours = EARLY if early and EARLY in regrets else OURS
        return (mean_of(ours)(regrets) + LEAST) / (mean_of(other)(regrets) + LEAST)

    return found


def measured(
    at: Condition, tasks: Sequence[str], methods: Sequence[str], seeds: int, jobs: int, folder: Path | None
) -> Regrets:
    """Every method on every task with every seed."""
    cells = [
        Cell(at, task, method, seed, folder) for method in methods for task in tasks for seed in range(seeds)
    ]
    with ProcessPoolExecutor(jobs) as pool:
        done = pool.map(regrets_of, cells, chunksize=4)
        stderr = Console(stderr=True)
        found = np.array([*track(done, at.name, len(cells), console=stderr, transient=True)])
    ends, early = found.T.reshape(2, len(methods), len(tasks), seeds)
    regrets = dict(zip(methods, ends, strict=True))
    return regrets if at.early == 1 else {**regrets, EARLY: early[methods.index(OURS)]}


def shown(at: Condition, tasks: Sequence[str], regrets: Regrets) -> Table:
    table = Table(title=at.name, title_justify="left")
    for head in ("method", "regret", "rank", *tasks):
        table.add_column(head, justify="left" if head == "method" else "right")
    for name in sorted(regrets, key=lambda name: mean_of(name)(regrets)):
        each = (f"{value:.3f}" for value in regrets[name].mean(axis=1))
        rank = "" if name == EARLY else f"{figure(rank_of(name), regrets):.2f}"
        table.add_row(name, f"{figure(mean_of(name), regrets)}", rank, *each)
    return table


def misses(at: Condition, tasks: Sequence[str], regrets: Regrets) -> list[str]:
    """The bounds that were missed."""
    found, other = figure(ratio_to(best_other(regrets)), regrets), best_other(regrets)
    missed = (
        [f"{found} times the regret of {other}, and not {at.most:g} at most"] if found.found > at.most else []
    )
    ranks = {name: rank_of(name)(regrets) for name in regrets if name != EARLY}
    if at.is_first and (first := min(ranks, key=ranks.__getitem__)) != OURS:
        missed.append(f"mean rank {ranks[OURS]:.2f}, and {ranks[first]:.2f} that of {first}")
    for n, task in enumerate(tasks if "random" in regrets else ()):
        of_task = {name: each[n : n + 1] for name, each in regrets.items()}
        worse = figure(ratio_to("random", early=False), of_task)
        if worse.low > 1:
            missed.append(f"{task}: {worse} times the regret of random search")
    return missed


def proposal_ms(count: int) -> float:
    """CPU milliseconds for each of `count` proposals at once, with the fit of the model: the median of REPEATS."""
    task, rng = planted(1), Random(1)

    def ran() -> Observation:
        config = drawn_config(task.dimensions, ANYWHERE, rng)
        return Observation(config, task.curve(config, rng)[-1])

    seen = [ran() for _ in range(KNOWN)]
    sampler = sampler_of(Policy().sampler, ANYWHERE)
    taken = list[float]()
    for _ in range(REPEATS):
        seen.append(ran())  # so that the model is fitted anew
        began = time.process_time()
        sampler.propose(task.dimensions, seen, ANYWHERE, count, rng)
        taken.append(time.process_time() - began)
    return 1000 * median(taken) / count


@click.command(help=__doc__)
@click.option("--seeds", type=click.IntRange(2), default=10, show_default=True)
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Searches at once.")
@click.option("--only", help="Only conditions with this text in their names.", default="")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True),
    help="With a tasks.py: `make(name)`, `DEV`, `LC`.",
)
@click.option("--beside", help="Only these other methods, with commas between them.")
def main(seeds: int, jobs: int, only: str, folder: Path | None, beside: str | None) -> None:
    known = methods_of(folder)
    others = [*METHODS][1:] if beside is None else beside.split(",")
    if unknown := {*others} - {*known}:
        raise click.BadParameter(
            f"{', '.join(sorted(unknown))}; there are {', '.join(known)}: pip installs the others"
        )
    curves, ends = names_in(folder) if folder else (CURVES, ENDS)
    bench = Bench(width=None if sys.stdout.isatty() else WIDE)
    console, missed = bench.console, bench.missed
    for at in CONDITIONS:
        if only not in at.name:
            continue
        tasks = curves if at.has_curves else ends
        methods = [OURS, *(name for name in others if at.has_curves or name not in FOR_CURVES)]
        regrets = measured(at, tasks, methods, seeds, jobs, folder)
        console.print(shown(at, tasks, regrets))
        other = best_other(regrets)
        console.print(f"{OURS}, of {other}: {figure(ratio_to(other), regrets)}, at most {at.most:g} asked\n")
        missed += [f"{at.name}: {each}" for each in misses(at, tasks, regrets)]
    for count, most in PROPOSALS.items():
        each_ms = proposal_ms(count)
        after = f"a proposal with {KNOWN:,} finished runs, {count} at once"
        console.print(f"{after}: {each_ms:.1f} ms of CPU each, {most:g} at most asked")
        if each_ms > most:
            missed.append(f"{count} proposals at once: {each_ms:.1f} ms each, and not {most:g} at most")
    bench.end(f"{seeds} seeds")


def names_in(folder: Path) -> tuple[Sequence[str], Sequence[str]]:
    """The tasks of a folder that have curves, and those that have not."""
    tasks = module_of(folder, "tasks")
    return tasks.LC, [name for name in tasks.DEV if name not in tasks.LC]


if __name__ == "__main__":
    main()
