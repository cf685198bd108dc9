"""Other libraries' searches, as methods of `bench.search`: each by its own interface, as its documentation advises.

None of them is needed: a method is there where its package is installed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench._search import Config, MethodOf, Task, module_of
from state.records import Dimension


class Optuna:
    """Optuna's TPE sampler, multivariate and with its constant liar, as its documentation advises for workers."""

    def __init__(self, task: Task, workers: int, runs: int, seed: int) -> None:
        optuna = import_module("optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.optuna, self.task = optuna, task
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=workers > 1)
        self.study = optuna.create_study(sampler=sampler)
        self.trials: dict[int, Any] = {}

    def ask(self, run: int) -> Config:
        trial = self.trials[run] = self.study.ask()
        return {d.name: self._suggested(trial, d) for d in self.task.dimensions}

    def is_stopped(self, run: int, progress: float, value: float) -> bool:
        return False

    def tell(self, run: int, value: float | None, *, stopped: bool = False) -> None:
        state = self.optuna.trial.TrialState
        self.study.tell(self.trials.pop(run), value, state=state.FAIL if value is None else state.COMPLETE)

    def _suggested(self, trial: Any, d: Dimension) -> Any:
        if d.categories is not None:
            return trial.suggest_categorical(d.name, d.categories)
        if d.dtype == "int":
            return trial.suggest_int(d.name, d.min, d.max)
        return trial.suggest_float(d.name, d.min, d.max, log=d.dtype == "float_log")


class Crashes:
    """Tells a library that knows no crashes that one is as bad as the worst value, once there is a value."""

    def __init__(self, tell: Callable[[Any, float], object]) -> None:
        self.tell, self.worst = tell, -math.inf
        self.held_back: list[Any] = []

    def ended(self, asked: Any, value: float | None) -> None:
        if value is None:
            self.held_back.append(asked)
        else:
            self.worst = max(self.worst, value)
            self.tell(asked, value)
        while math.isfinite(self.worst) and self.held_back:
            self.tell(self.held_back.pop(), self.worst)


class Nevergrad:
    """Nevergrad's NGOpt, which chooses its optimiser by the space, the budget and how many workers there are."""

    def __init__(self, task: Task, workers: int, runs: int, seed: int) -> None:
        self.ng = import_module("nevergrad")
        space = self.ng.p.Dict(**{d.name: self._parameter(d) for d in task.dimensions})
        space.random_state.seed(seed)
        self.search = self.ng.optimizers.NGOpt(space, budget=runs, num_workers=workers)
        self.asked: dict[int, Any] = {}
        self.told = Crashes(self.search.tell)

    def ask(self, run: int) -> Config:
        self.asked[run] = self.search.ask()
        return dict(self.asked[run].value)

    def is_stopped(self, run: int, progress: float, value: float) -> bool:
        return False

    def tell(self, run: int, value: float | None, *, stopped: bool = False) -> None:
        self.told.ended(self.asked.pop(run), value)

    def _parameter(self, d: Dimension) -> Any:
        if d.categories is not None:
            return self.ng.p.Choice([*d.categories])
        if d.dtype == "float_log":
            return self.ng.p.Log(lower=d.min, upper=d.max)
        ranged = self.ng.p.Scalar(lower=d.min, upper=d.max)
        return ranged.set_integer_casting() if d.dtype == "int" else ranged


class Dehb:
    """DEHB: differential evolution with Hyperband; a run ends at the share of its way that it asks for.

    For tasks with learning curves: where runs have only an end, all that it asks for would cost a whole run.
    """

    def __init__(self, task: Task, workers: int, runs: int, seed: int) -> None:
        logging.disable(logging.WARNING)
        self.cs, self.task = import_module("ConfigSpace"), task
        space = self.cs.ConfigurationSpace(seed=seed)
        space.add(*(self._parameter(d) for d in task.dimensions))
        self.folder = TemporaryDirectory(prefix="dehb-")
        self.search = import_module("dehb").DEHB(
            f=None,
            cs=space,
            min_fidelity=1,
            max_fidelity=task.points,
            n_workers=1,
            seed=seed,
            output_path=self.folder.name,
            log_level="ERROR",
            save_freq="end",
        )
        self.asked: dict[int, Any] = {}
        self.told = Crashes(
            lambda asked, value: self.search.tell(asked, {"fitness": value, "cost": asked["fidelity"]})
        )

    def ask(self, run: int) -> Config:
        self.asked[run] = self.search.ask()
        found = dict(self.asked[run]["config"])
        return {d.name: self._value(d, found[d.name]) for d in self.task.dimensions}

    def is_stopped(self, run: int, progress: float, value: float) -> bool:
        fidelity: float = self.asked[run]["fidelity"]
        return progress * self.task.points >= fidelity - 1e-9

    def tell(self, run: int, value: float | None, *, stopped: bool = False) -> None:
        self.told.ended(self.asked.pop(run), value)

    def _parameter(self, d: Dimension) -> Any:
        if d.categories is not None:
            return self.cs.CategoricalHyperparameter(d.name, [*d.categories])
        of = self.cs.UniformIntegerHyperparameter if d.dtype == "int" else self.cs.UniformFloatHyperparameter
        return of(d.name, d.min, d.max, log=d.dtype == "float_log")

    @staticmethod
    def _value(d: Dimension, found: Any) -> Any:
        """As Python's own number, or the category that it stands for."""
        if d.categories is not None:
            return next(each for each in d.categories if each == found)
        return int(found) if d.dtype == "int" else float(found)


class Registered:
    """A method of a folder's `methods.REG`: `ask(run, now)`, `report(run, point, value, now)` and `tell`.

    `now` is always 0.
    """

    def __init__(self, task: Task, workers: int, runs: int, seed: int, *, folder: Path, name: str) -> None:
        self.task, space = task, module_of(folder, "tasks").make(task.name).space
        self.method = module_of(folder, "methods").REG[name](space, task.points, workers, runs, seed)
        self.at: dict[int, int] = {}

    def ask(self, run: int) -> Config:
        self.at[run] = 0
        found: Config = self.method.ask(run, 0.0)
        return found

    def is_stopped(self, run: int, progress: float, value: float) -> bool:
        self.at[run] = round(progress * self.task.points)
        return bool(self.method.report(run, self.at[run], value, 0.0))

    def tell(self, run: int, value: float | None, *, stopped: bool = False) -> None:
        became = "crashed" if value is None else "stopped" if stopped else "completed"
        reported = self.at.pop(run)
        at = 0 if value is None else reported if stopped else self.task.points
        self.method.tell(run, value, at, became, 0.0)


FOR_CURVES = ("DEHB",)
"""Methods that need learning curves."""


def installed() -> Mapping[str, MethodOf]:
    """The searches of the packages that are installed."""
    found: Mapping[str, tuple[str, MethodOf]] = {
        "TPE": ("optuna", Optuna),
        "NGOpt": ("nevergrad", Nevergrad),
        "DEHB": ("dehb", Dehb),
    }
    return {name: method for name, (package, method) in found.items() if find_spec(package)}


def registered(folder: Path) -> Mapping[str, MethodOf]:
    """The methods of a folder, if it has any, as `folder:NAME`."""
    if not (folder / "methods.py").exists():
        return {}
    return {
        f"folder:{name}": partial(Registered, folder=folder, name=name)
        for name in module_of(folder, "methods").REG
    }
