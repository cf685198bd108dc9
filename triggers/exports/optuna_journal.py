"""Exports to a study in Optuna's journal storage: a trial for each experiment."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from triggers.exports.reading import ExportedRun, TagFacts, TagReader, Target, View

NOT_BEST = "not_best"
"""Name of the constraint that a trial violates if it is no best of the lab, whatever its value."""


class OptunaJournal(Target):
    """A study with the tag's name. Its best trial is the lab's best.

    A trial's value is the one that its experiment is judged by. A trial that is better than the lab's best (a claim,
    or a run of another GPU class) is infeasible. Retests are attributes of their trial.
    """

    def __init__(self, output: str, tag: TagFacts, reader: TagReader) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.opened_by = f"optuna-dashboard {output}"
        self._reader = reader
        self._tag = tag
        self._study = optuna.create_study(
            study_name=tag.name,
            storage=JournalStorage(JournalFileBackend(output)),
            direction=tag.direction,
            load_if_exists=True,
        )
        self._study.set_user_attr("metric", tag.metric)
        trials = self._study.get_trials(deepcopy=False)
        self._ids = {trial.user_attrs.get("experiment_id") for trial in trials}
        self._space = ParameterSpace(reader.dimensions())
        for runs, _ in reader.pages(fields=["experiment_id", "config_delta"]):
            for run in runs:
                self._space.widen(run.view["config_delta"] or {})

    def lacks(self, run: ExportedRun) -> bool:
        return run.id not in self._ids

    def add(self, run: ExportedRun) -> None:
        value = run.record.judged
        state = TrialState.COMPLETE if value is not None else TrialState.FAIL
        if run.record.status == "stopped":
            state = TrialState.PRUNED
        elif run.record.status not in ("keep", "discard"):
            state = TrialState.FAIL
        params, distributions = self._space.trial(run.constants)
        trial = create_trial(
            state=state,
            value=value if state == TrialState.COMPLETE else None,
            params=params,
            distributions=distributions,
            user_attrs=self._attributes(run),
            intermediate_values={step: told for step, (told, _) in run.curve().items()},
            constraints={NOT_BEST: 1.0 if value is not None and self._is_no_best(value) else 0.0},
        )
        trial.datetime_start, trial.datetime_complete = run.times()
        self._study.add_trial(trial)
        self._ids.add(run.id)

    def complete(self) -> str | None:
        self._tag = self._reader.facts()
        feasible = [
            trial.value
            for trial in self._study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
            if trial.value is not None and not any(trial.constraints.values())
        ]
        best = (min if self._tag.direction == "minimize" else max)(feasible, default=None)
        if best == self._tag.best:
            return None
        return (
            f"the study's best is {best}, the lab's {self._tag.best}: verdicts have changed since their export,"
            " or a keep waits for its retests; a new file has the new verdicts"
        )

    def _is_no_best(self, value: float) -> bool:
        """Whether this is better than the lab's best, which may have changed meanwhile."""
        if self._tag.best is None or self._tag.better(value, self._tag.best):
            self._tag = self._reader.facts()
        return self._tag.best is None or self._tag.better(value, self._tag.best)

    def _attributes(self, run: ExportedRun) -> dict[str, Any]:
        retests = {"retests": run.retests} if run.retests else {}
        return {**run.facts(), **run.measures(self._tag.metric), **retests}


class ParameterSpace:
    """Constants of a tag as Optuna's parameters: the ranges of dimensions, widened to the values that were run.

    All trials have the same ranges, because Optuna measures importances only of such parameters.
    """

    def __init__(self, dimensions: list[View]) -> None:
        self._log: set[str] = set()
        self._defaults: dict[str, Any] = {}
        self._numbers: dict[str, list[float]] = {}
        """Lowest and highest."""
        self._floats: set[str] = set()
        self._choices: dict[str, dict[Any, None]] = {}
        for dimension in dimensions:
            name, default = dimension["name"], dimension["default_value"]
            self.widen({name: dimension["min"]})
            self.widen({name: dimension["max"]})
            for choice in dimension["categories"] or ():
                self._choices.setdefault(name, {})[choice] = None
            if dimension["dtype"].startswith("float"):
                self._floats.add(name)
            if dimension["dtype"] == "float_log":
                self._log.add(name)
            if default is not None:
                self._defaults[name] = default

    def widen(self, config: View) -> None:
        """Have room for these values."""
        for name, value in config.items():
            if not isinstance(value, str | int | float):
                continue  # a list is no parameter of Optuna's
            if isinstance(value, str | bool) or name in self._choices:
                self._choices.setdefault(name, {})[value] = None
            else:
                low, high = self._numbers.setdefault(name, [value, value])
                self._numbers[name] = [min(low, value), max(high, value)]
                if isinstance(value, float):
                    self._floats.add(name)

    def trial(self, config: View) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """Parameters of a trial, those it leaves to train.py included where their values are known."""
        self.widen(config)
        params = {
            name: value
            for name, value in {**self._defaults, **config}.items()
            if isinstance(value, str | int | float) and (name in self._choices or name in self._numbers)
        }
        return params, {name: self._distribution(name) for name in params}

    def _distribution(self, name: str) -> BaseDistribution:
        if name in self._choices:
            return CategoricalDistribution([*self._choices[name]])
        low, high = self._numbers[name]
        is_log = name in self._log and low > 0
        if name in self._floats:
            return FloatDistribution(low, high, log=is_log)
        return IntDistribution(int(low), int(high), log=is_log)
