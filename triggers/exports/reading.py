"""Runs as exports write them, read from a running lab page by page; and a place that they are exported to."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from state.client_settings import ClientSettings
from state.errors import NotFound
from state.records import OPEN, Direction
from state.records.experiments import ExperimentRecord
from triggers.cli.lab_http import AWAY, LabHttp
from triggers.cli.runs import pages_of, path_of, tags_of
from triggers.cli.wait import patiently

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
        began = self.view["started_at"] or self.view["registered_at"]
        return _moment(began), _moment(self.view["finished_at"] or began)


def _moment(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp).astimezone(UTC)


class Target(ABC):
    """One file, folder or server. It knows by their ids which runs it has."""

    needs_whole = True
    """It takes runs with their patches, ticks and retests."""
    is_final = True
    """It cannot change what it has, so keeps are exported once their retests have ended."""
    opened_by: str
    """The command that shows it."""

    def awaits(self, run: ExportedRun) -> bool:
        """Whether it cannot have this run yet."""
        return not (run.is_settled if self.is_final else run.is_over)

    @abstractmethod
    def lacks(self, run: ExportedRun) -> bool:
        """Whether it has not got this run, or has another verdict of it and can change that."""

    @abstractmethod
    def add(self, run: ExportedRun) -> None:
        """Write a run, and change one that is there."""

    def complete(self) -> str | None:
        """Called after all runs were added; answers what differs from the lab."""
        return None

    def close(self) -> None:  # noqa: B027 - most write each run at once
        """Let go of it."""


AT_ONCE = 4
"""Requests for whole experiments at a time."""


class TagReader:
    def __init__(self, settings: ClientSettings, tag: str) -> None:
        self._settings = settings
        self._http = LabHttp(settings)
        self._tag = tag

    def facts(self) -> TagFacts:
        policy = self._ask("POST", "/api/search/policy", {"tag": self._tag})["policy"]
        for tag in tags_of(self._ask):
            if tag["name"] == self._tag:
                by_delta = policy["compare_by"] == "delta"
                return TagFacts(self._tag, tag["metric"], tag["direction"], by_delta, tag["best_val_bpb"])
        raise NotFound(f"there is no tag {self._tag!r}", hint="./nightjar status shows the lab's tags")

    def dimensions(self) -> list[View]:
        """What a swarm may vary; empty for other tags."""
        found: list[View] = self._ask("POST", "/api/dimension/list", {"tag": self._tag})["dimensions"]
        return found

    def pages(self, fields: Sequence[str] | None = None) -> Iterator[tuple[list[ExportedRun], int]]:
        """Pages of all runs by number, with these fields or all, and the number of runs; those that go on, too."""
        for page in pages_of(self._ask, self._tag, fields):
            gains = page["gains"]
            yield [ExportedRun(e, gains.get(e["experiment_id"])) for e in page["experiments"]], page["total"]

    def whole(self, runs: Sequence[ExportedRun]) -> Iterator[ExportedRun]:
        """The same with their patches, ticks and retests. A few are in memory at a time."""
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for first in range(0, len(runs), 4 * AT_ONCE):
                yield from threads.map(self.one, [run.id for run in runs[first : first + 4 * AT_ONCE]])

    def one(self, experiment_id: str) -> ExportedRun:
        """One run, with all that is known of it."""
        whole = self._ask("GET", path_of(experiment_id))
        gain = whole["gain"]
        return ExportedRun(whole["experiment"], None if gain is None else gain["by"], whole)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer to one request; tried again while the lab is away or busy, for a while."""

        def asked() -> Any:
            try:
                return self._http.ask(method, path, body)
            except AWAY:
                self._http = LabHttp(self._settings)  # after a restart it may have another port
                raise

        return patiently(asked)
