"""Reads a tag of a running lab for an export, page by page; and a place that runs are exported to."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from state.client_settings import ClientSettings
from state.errors import NotFound
from triggers.cli.lab_http import AWAY, LabHttp
from triggers.cli.runs import pages_of, path_of, tags_of
from triggers.cli.wait import PATIENCE_S, RETRY_S
from triggers.exports.runs import ExportedRun, TagFacts, View


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


@dataclass(frozen=True)
class RunPage:
    """Some of a tag's experiments by number; those that have not ended, too."""

    runs: list[ExportedRun]
    total: int


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

    def pages(self, fields: Sequence[str] | None = None) -> Iterator[RunPage]:
        """All runs, with these fields or all."""
        for page in pages_of(self._ask, self._tag, fields):
            runs = [ExportedRun(e, page["gains"].get(e["experiment_id"])) for e in page["experiments"]]
            yield RunPage(runs, page["total"])

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
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._http.ask(method, path, body)
            except AWAY as problem:
                if time.monotonic() > give_up:
                    raise
                time.sleep(problem.retry_after or RETRY_S)
                self._http = LabHttp(self._settings)  # after a restart it may have another port
