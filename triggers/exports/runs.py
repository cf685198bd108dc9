"""A run as exports write it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from state.records import OPEN, Direction
from state.records.experiments import ExperimentRecord

View = Mapping[str, Any]
Fact = str | int | float | bool
STEPS = 1000
"""Steps of a whole run. Targets count steps as integers, and runs are compared at the same progress."""
FACTS = (
    *("experiment_id", "number", "status", "trust", "category", "agent", "hypothesis", "description"),
    *("diff_summary", "commit_sha", "base_commit_sha", "trace_id", "hypothesis_id", "seed"),
    *("gpu_id", "gpu_class", "worker_id", "baseline", "claimed", "over_budget", "error_kind", "error"),
)
"""Fields of an experiment that are no measurements. Empty ones are left out."""
NUMBERS = (
    *("delta_bpb", "reported", "p_better", "peak_vram_mb", "training_seconds", "wall_seconds", "cpu_seconds"),
    *("total_tokens_m", "mfu_percent", "num_steps", "num_params_m", "depth"),
)


@dataclass(frozen=True)
class TagFacts:
    """A tag, and its best."""

    name: str
    metric: str
    direction: Direction
    by_delta: bool
    """Runs are judged by their difference to a baseline."""
    best: float | None
    """The value that its best is judged by."""

    def better(self, one: float, other: float) -> bool:
        return one < other if self.direction == "minimize" else one > other


@dataclass(frozen=True)
class ExportedRun:
    """An experiment. `whole` is the answer of experiment::get, if it was asked for."""

    view: View
    gain: float | None
    whole: View | None = None

    @cached_property
    def record(self) -> ExperimentRecord:
        return ExperimentRecord.model_validate(self.view)

    @property
    def id(self) -> str:
        return self.record.experiment_id

    @property
    def is_over(self) -> bool:
        return self.record.status not in OPEN

    @property
    def is_settled(self) -> bool:
        """Whether it has ended, and waits for no retest."""
        return self.is_over and self.record.trust != "provisional"

    @property
    def parent(self) -> str | None:
        """The first experiment that it was made from."""
        return next(iter(self.record.parent_ids), None)

    @property
    def constants(self) -> dict[str, Any]:
        """The constants of its train.py that it set."""
        return self.record.config_delta or {}

    @property
    def verdict(self) -> str:
        """Changes with its status, its trust, its retests and the value that it is judged by."""
        e = self.record
        return f"{e.status} {e.trust} {e.retests} {e.judged!r}"

    def facts(self) -> dict[str, Fact]:
        """What is known of it besides numbers and constants."""
        known = {name: getattr(self.record, name) for name in FACTS}
        known |= {
            "parent_ids": " ".join(self.record.parent_ids),
            "diff_sha256": None if self.diff is None else hashlib.sha256(self.diff.encode()).hexdigest(),
        }
        return {name: value for name, value in known.items() if value not in (None, "", False)}

    def config(self) -> dict[str, Any]:
        """Its facts, constants, retests and times in one dictionary."""
        began, ended = self.times()
        more = {"retests": self.retests, "started_at": str(began), "finished_at": str(ended)}
        return {**self.facts(), **self.constants, **more}

    def measures(self, metric: str) -> dict[str, float]:
        """Its numbers, the value under the metric's name."""
        e = self.record
        own = {metric: e.val_bpb, "judged": e.judged, "gain": self.gain}
        found = {**e.metrics, **{name: getattr(e, name) for name in NUMBERS}, **own}
        return {name: float(value) for name, value in found.items() if value is not None}

    @property
    def diff(self) -> str | None:
        """Its patch against the tag's base commit."""
        return None if self.whole is None else self.whole["diff"]

    def curve(self) -> dict[int, tuple[float, float]]:
        """By step: the reported value, and when, in seconds since 1970."""
        ticks: list[tuple[float, float, float]] = [] if self.whole is None else self.whole["ticks"]
        return {round(progress * STEPS): (value, at) for progress, value, at in sorted(ticks)}

    @property
    def retests(self) -> list[float]:
        shown = [] if self.whole is None else self.whole["retests"]
        return [retest["val_bpb"] for retest in shown if retest["val_bpb"] is not None]

    def times(self) -> tuple[datetime, datetime]:
        """Begin and end."""
        began = self.view["started_at"] or self.view["registered_at"]
        return _moment(began), _moment(self.view["finished_at"] or began)


def _moment(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp).astimezone(UTC)
