"""Simulated searches: tasks, search methods, and workers that run the proposed configs."""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from itertools import product
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Protocol

import numpy as np

from bench._planted import DIMENSIONS, SIGMA, Truth, declared
from bench._tag import KeepingTag, SimulatedRetest
from bench.earlystop import StoppingTag
from functions.experiments.rules.opening import swarm_policy, swarm_tag
from functions.runs.rules.ticks import bucket_of
from functions.swarm.dimensions import swarm_dimensions
from functions.swarm.rules.dimensions import checked
from functions.swarm.rules.handing_out import QueuedConfig
from functions.swarm.rules.populations import everyone, queue_target
from functions.swarm.rules.proposals import fingerprint
from functions.swarm.rules.refilling import replenished
from functions.swarm.rules.shapes import Shape, drawn_config
from functions.swarm.rules.simulating import final, simulate_metric
from functions.trust.rules.retests import Effort
from state.policy import Policy
from state.records import Dimension, Value
from state.swarm_facts import Observed, RefillFacts

Config = Mapping[str, Value]
RUN_S = 300.0
VARIES = 0.03
"""Standard deviation of a run's duration, as a share of it."""
CRASHED_BY = 0.3
"""A run that crashes does so before this share of its way."""
ANYWHERE = Shape("investigate")
CURVES = Path(__file__).parent / "curves"


# -- tasks


@dataclass(frozen=True)
class Task:
    """A function of a config to minimise."""

    name: str
    dimensions: Sequence[Dimension]
    points: int
    """Reports of a run; 1: only its end."""
    curve: Callable[[Config, Random], Sequence[float]]
    """Reports of a run, with noise."""
    truth: Callable[[Config], float]
    """Final value without noise."""
    best: float
    usual: float
    """The median of configs at random."""

    def regret(self, config: Config) -> float:
        """0: the best config; 1: the median random config."""
        return max(0.0, (self.truth(config) - self.best) / (self.usual - self.best))


def _usual(dimensions: Sequence[Dimension], truth: Callable[[Config], float]) -> float:
    rng = Random(1)
    return median(truth(drawn_config(dimensions, ANYWHERE, rng)) for _ in range(2000))


@cache
def digits() -> Task:
    """Trainings of scikit-learn's MLPClassifier on its digits, each with three seeds: a grid of 432 configs."""
    grid: dict[str, Sequence[Value]] = {
        "depth": (1, 2, 3),
        "width": (8, 32, 128),
        "lr": (1e-4, 5e-4, 2e-3, 8e-3, 3e-2, 1e-1),
        "batch_size": (32, 128),
        "activation": ("relu", "tanh"),
        "optimizer": ("adam", "sgd"),
    }
    with np.load(CURVES / "digits_seeds.npz") as file:
        curves = file["curves"].astype(float)
    rows = {values: n for n, values in enumerate(product(*grid.values()))}
    dimensions = (
        declared("depth", "int", min=1, max=3),
        declared("width", "categorical", categories=[8, 32, 128]),
        declared("lr", "float_log", min=1e-4, max=1e-1),
        *(declared(name, "categorical", categories=[*grid[name]]) for name in [*grid][3:]),
    )

    def row(config: Config) -> int:
        rate = min(grid["lr"], key=lambda known: abs(math.log(float(known) / float(config["lr"]))))
        return rows[tuple(rate if name == "lr" else config[name] for name in grid)]

    ends = curves[:, :, -1].mean(axis=1)

    def truth(config: Config) -> float:
        return float(ends[row(config)])

    return Task(
        "digits",
        dimensions,
        curves.shape[2],
        lambda config, rng: curves[row(config), rng.randrange(3)].tolist(),
        truth,
        float(ends.min()),
        _usual(dimensions, truth),
    )


@cache
def simulated(profile: str) -> Task:
    """The learning curves of `./nightjar simulate`, of one of the two profiles."""
    dimensions, points = [checked(each) for each in swarm_dimensions(profile)], 20
    rng = Random(2)
    lowest = min(final(drawn_config(dimensions, ANYWHERE, rng)) for _ in range(20_000))
    return Task(
        profile,
        dimensions,
        points,
        lambda config, rng: [simulate_metric(config, n / points, rng) for n in range(1, points + 1)],
        final,
        lowest,
        _usual(dimensions, final),
    )


@cache
def planted(seed: int) -> Task:
    """Eight dimensions with a random optimum. Two interact, and one has no effect."""
    truth = Truth.drawn(Random(f"truth {seed}"))
    return Task(
        f"planted-{seed}",
        DIMENSIONS,
        1,
        lambda config, rng: [rng.gauss(truth.value(config), SIGMA)],
        truth.value,
        truth.best,
        _usual(DIMENSIONS, truth.value),
    )


def from_folder(folder: Path, names: Sequence[str]) -> list[Task]:
    """Tasks of a folder with a `tasks.py` that makes them: tables and surrogates of real trainings."""
    make = module_of(folder, "tasks").make
    return [_theirs(make(name)) for name in names]


def module_of(folder: Path, name: str) -> Any:
    """A module of a folder outside the project."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return import_module(name)


def _theirs(found: Any) -> Task:
    def ours(p: Any) -> Dimension:
        if p.kind == "cat":
            return declared(p.name, "categorical", categories=[*p.choices])
        if p.kind == "int":
            return declared(p.name, "int", min=int(p.lo), max=int(p.hi))
        return declared(p.name, "float_log" if p.log else "float", min=p.lo, max=p.hi)

    return Task(
        found.name,
        [ours(p) for p in found.space],
        found.K,
        lambda config, rng: found.run(config, rng.getrandbits(31))[0].tolist(),
        found.truth,
        found.best,
        found.med,
    )


# -- methods


class Method(Protocol):
    """A search method: it proposes configs and learns their results."""

    def ask(self, run: int) -> Config: ...

    def is_stopped(self, run: int, progress: float, value: float) -> bool:
        """Whether to stop a run that has reported at this share of its way, below 1."""
        ...

    def tell(self, run: int, value: float | None, *, stopped: bool = False) -> None:
        """A run has ended, or was stopped, with this value; None: it crashed."""
        ...


MethodOf = Callable[[Task, int, int, int], Method]
"""Makes a method for a task, a number of workers, a budget in complete runs, and a seed."""


class Nightjar:
    """A swarm without hypotheses, by the rules of the server: its sampler, queue, early stopping and retests.

    Retests take their share of the GPU time. Its answer is the tag's best by the keep rule.
    """

    def __init__(self, task: Task, workers: int, runs: int, seed: int, *, policy: Policy) -> None:
        self.task, self.workers, self.policy = task, workers, policy
        self.rng = Random(f"nightjar {seed}")
        self.population = everyone(task.name)
        self.seen: dict[int, Observed] = {}
        self.queue: dict[str, float] = {}
        """The configs that wait, with their priorities."""
        self.tag = StoppingTag(f"{task.name}-{seed}", policy.stopping)
        self.results = 0
        self.lowest = math.inf
        self.has_new_best = False
        self.reported: set[tuple[int, float | None]] = set()
        self.keeps = KeepingTag(policy.keep_rule, Effort(0, policy.max_retests))
        self.retests: dict[int, SimulatedRetest] = {}
        self.worker_of: dict[int, int] = {}
        self.free = 0
        """The worker that asks next: at first each once, then the one whose run has ended."""

    @property
    def best(self) -> Config | None:
        """The config of the tag's best; None: no run has ended."""
        best = self.keeps.best
        return None if best is None else self.seen[int(best.experiment_id)].config_delta

    def ask(self, run: int) -> Config:
        self.worker_of[run] = run if run < self.workers else self.free
        if self.keeps.waiting:
            self.retests[run] = self.keeps.waiting.popleft()
            return self.seen[int(self.retests[run].of)].config_delta
        if self.has_new_best or len(self.queue) <= queue_target(self.policy, self.workers) // 2:
            self._refill()
        first = max(self.queue, key=self.queue.__getitem__)
        del self.queue[first]
        config = QueuedConfig.read(first).config
        self.seen[run] = Observed(
            experiment_id=str(run),
            status="running",
            config_delta=dict(config),
            fingerprint=fingerprint(config, self.task.dimensions),
        )
        return config

    def is_stopped(self, run: int, progress: float, value: float) -> bool:
        report = run, bucket_of(progress)
        if report in self.reported or run in self.retests:  # the first report at a bucket counts
            return False
        self.reported.add(report)
        return self.tag.is_stopped(run, progress, value)

    def tell(self, run: int, value: float | None, *, stopped: bool = False) -> None:
        self.free, self.results = self.worker_of[run], self.results + 1
        worker = str(self.free)
        if (retest := self.retests.get(run)) is not None:
            self.keeps.end(retest, "broke" if value is None else value, worker)
            self.keeps.judge_retests()
            return
        ended = "crash" if value is None else "stopped" if stopped else "discard"
        if value is not None and not stopped:
            self.tag.end(run, value)
            self.has_new_best |= value < self.lowest
            self.lowest = min(value, self.lowest)
            self.keeps.complete(str(run), value, code=self.seen[run].fingerprint, worker=worker)
            self.keeps.judge_retests()
        became = {"status": ended, "delta_bpb": None if stopped else value}
        self.seen[run] = self.seen[run].model_copy(update=became)

    def _refill(self) -> None:
        """Refill the queue, as swarm::refill does when few configs wait or there is a new best."""
        self.has_new_best = False
        name = self.population.population_id
        facts = RefillFacts(
            now=0.0,
            tag=swarm_tag("search").model_copy(update={"discarded": self.results}),
            policy=self.policy,
            policy_version=1,
            dimensions=self.task.dimensions,
            dimensions_version=1,
            active_workers=self.workers,
            best=None,
            populations=[],
            in_flight={},
            newest_at=0.0,
            observed=[*reversed(self.seen.values())],
            waiting={name: [*self.queue]},
            best_config={},
        )
        change = replenished(facts, self.population, self.rng)
        for text in change.dropped:
            del self.queue[text]
        self.queue |= dict(change.added)


def nightjar(**changes: Any) -> MethodOf:
    """The rules of a server's swarms, with some values of the policy changed: `stopping__rule` is stopping.rule."""
    policy = swarm_policy(Policy()).changed(
        {name.replace("__", "."): value for name, value in changes.items()}
    )
    return partial(Nightjar, policy=policy)


class AtRandom:
    """Random search."""

    def __init__(self, task: Task, workers: int, runs: int, seed: int) -> None:
        self.task, self.rng = task, Random(f"random {seed}")
        self.configs: dict[int, Config] = {}

    def ask(self, run: int) -> Config:
        self.configs[run] = self._next()
        return self.configs[run]

    def is_stopped(self, run: int, progress: float, value: float) -> bool:
        return False

    def tell(self, run: int, value: float | None, *, stopped: bool = False) -> None:
        pass

    def _next(self) -> Config:
        return drawn_config(self.task.dimensions, ANYWHERE, self.rng)


class Greedy(AtRandom):
    """One or two dimensions of the best config changed, one config in five anywhere; asynchronous successive halving.

    Like an agent's loop that keeps improvements. Runs are stopped at a tenth and at three tenths of their way if they
    are worse than the best third of the runs at that point (Li et al. 2020).
    """

    RESTARTS, FARTHEST, RUNGS, PEERS = 0.2, 0.2, (0.1, 0.3), 9

    def __init__(self, task: Task, workers: int, runs: int, seed: int) -> None:
        super().__init__(task, workers, runs, seed)
        self.best: tuple[float, Config] | None = None
        self.rungs: dict[float, list[float]] = {rung: [] for rung in self.RUNGS}

    def is_stopped(self, run: int, progress: float, value: float) -> bool:
        rung = next((rung for rung in self.RUNGS if math.isclose(rung, progress)), None)
        if rung is None:
            return False
        self.rungs[rung].append(value)
        known = sorted(self.rungs[rung])
        return len(known) >= self.PEERS and value > known[len(known) // 3]

    def tell(self, run: int, value: float | None, *, stopped: bool = False) -> None:
        if value is not None and not stopped and (self.best is None or value < self.best[0]):
            self.best = value, self.configs[run]

    def _next(self) -> Config:
        if self.best is None or self.rng.random() < self.RESTARTS:
            return super()._next()
        config = dict(self.best[1])
        for dimension in self.rng.sample([*self.task.dimensions], self.rng.choice((1, 1, 2))):
            config[dimension.name] = self._changed(dimension, config[dimension.name])
        return config

    def _changed(self, dimension: Dimension, value: Value) -> Value:
        drawn = drawn_config([dimension], ANYWHERE, self.rng)[dimension.name]
        if dimension.min is None or dimension.max is None or isinstance(value, bool | str):
            return drawn
        low, high = float(dimension.min), float(dimension.max)
        if dimension.dtype == "float_log":
            place = math.log(value) + self.rng.gauss(0, self.FARTHEST) * math.log(high / low)
            return min(max(float(f"{math.exp(place):.3g}"), low), high)
        moved = min(max(value + self.rng.gauss(0, self.FARTHEST) * (high - low), low), high)
        return round(moved) if dimension.dtype == "int" else float(f"{moved:.3g}")


# -- workers


@dataclass
class Search:
    """The course of a search. `regrets`: GPU seconds and regret of the method's answer from then on."""

    regrets: list[tuple[float, float]] = field(default_factory=list)
    started: int = 0
    stopped: int = 0

    def regret(self, gpu_s: float) -> float:
        """Regret of the method's answer after this GPU time, at most 1."""
        known = [regret for at, regret in self.regrets if at <= gpu_s]
        return min(1.0, known[-1]) if known else 1.0


def searched(
    task: Task, method: Method, workers: int, budget_s: float, seed: int, crashes: float = 0.0
) -> Search:
    """Run the method's proposals on workers until they have used the budget of GPU time together.

    A run takes 300 s with a standard deviation of 3 %. It reports as often as the task has points. A method's answer
    is the config with the lowest result, but a lab's is its tag's best.
    """
    chance, found = Random(f"workers {seed}"), Search()
    going: list[tuple[float, int, int]] = []
    began, curves, lasts = dict[int, float](), dict[int, Sequence[float]](), dict[int, float]()
    closed, lowest = 0.0, math.inf
    answer: Config | None = None
    configs: dict[int, Config] = {}

    def start(now: float) -> None:
        run = found.started
        configs[run] = method.ask(run)
        curves[run] = task.curve(configs[run], Random(f"run {seed} {run}"))
        began[run], lasts[run] = now, RUN_S * max(0.8, chance.gauss(1, VARIES))
        if chance.random() < crashes:
            heapq.heappush(going, (now + chance.random() * CRASHED_BY * lasts[run], run, 0))
        else:
            heapq.heappush(going, (now + lasts[run] / task.points, run, 1))
        found.started += 1

    for _ in range(workers):
        start(0.0)
    while True:
        now, run, point = heapq.heappop(going)
        used = closed + sum(now - start_s for start_s in began.values())
        if used >= budget_s:
            return found
        value = curves[run][point - 1]
        is_crash, is_end = point == 0, point == task.points
        is_stop = not (is_crash or is_end) and method.is_stopped(run, point / task.points, value)
        if not (is_crash or is_end or is_stop):
            heapq.heappush(going, (began[run] + (point + 1) * lasts[run] / task.points, run, point + 1))
            continue
        closed += now - began.pop(run)
        found.stopped += is_stop
        method.tell(run, None if is_crash else value, stopped=is_stop)
        if is_end and value < lowest:
            lowest, answer = value, configs[run]
        if isinstance(method, Nightjar):
            answer = method.best
        if answer is not None:
            found.regrets.append((used, task.regret(answer)))
        start(now)
