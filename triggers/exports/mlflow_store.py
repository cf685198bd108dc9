"""Exports to MLflow: an experiment for the tag, a run for each experiment."""

from __future__ import annotations

import os
import posixpath
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")

from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]
from mlflow.entities import Metric, Param, RunTag  # pyright: ignore[reportMissingImports]
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID  # pyright: ignore[reportMissingImports]
from sqlalchemy import Engine, event  # pyright: ignore[reportMissingImports]

from triggers.exports.reading import ExportedRun, TagFacts, TagReader, Target

Item = TypeVar("Item")
ID, VERDICT = "nightjar.experiment_id", "nightjar.verdict"
NOTE = "mlflow.note.content"
MOST_CHARACTERS = 5000
"""Of a text as a tag or a parameter."""
PAGE = 1000
RUNNING = "RUNNING"
"""Status of a run until all of it is exported."""
STATUS = {"crash": "FAILED", "timeout": "FAILED", "invalid": "FAILED", "lost": "KILLED", "stopped": "KILLED"}
"""Statuses of MLflow; others are FINISHED."""


@event.listens_for(Engine, "connect")
def _write_ahead(connection: Any, _: Any) -> None:
    """Have SQLite wait for the disk at its checkpoints alone: MLflow commits several times for each run."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")


class MlflowStore(Target):
    """A folder with a database and artifacts, or the URI of a tracking server.

    Runs have their constants as parameters, their patch as an artifact, their ticks and retests as the metrics `tick`
    and `retest`, and their first parent as MLflow's parent.
    """

    is_final = False

    def __init__(self, output: str, tag: TagFacts, reader: TagReader) -> None:
        artifacts, uri = None, output
        self.opened_by = output
        if "://" not in output:
            folder = Path(output).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            uri, artifacts = f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()
            self.opened_by = f"mlflow ui --backend-store-uri {uri}"
        self._metric = tag.metric
        self._client = MlflowClient(tracking_uri=uri)
        found = self._client.get_experiment_by_name(tag.name)
        self._experiment = (
            found.experiment_id
            if found
            else self._client.create_experiment(tag.name, artifact_location=artifacts)
        )
        self._runs: dict[str, tuple[str, str | None]] = {}
        """By experiment: the run, and the verdict that it has; None: it is not complete."""
        self._find_runs()

    def lacks(self, run: ExportedRun) -> bool:
        return self._runs.get(run.id, ("", None))[1] != run.verdict

    def add(self, run: ExportedRun) -> None:
        began, ended = (int(moment.timestamp() * 1000) for moment in run.times())
        facts = {f"nightjar.{key}": str(fact)[:MOST_CHARACTERS] for key, fact in run.facts().items()}
        tags = {**facts, VERDICT: run.verdict}
        if run.parent in self._runs:
            tags[MLFLOW_PARENT_RUN_ID] = self._runs[run.parent][0]
        known = self._runs.get(run.id)
        run_id = known[0] if known else self._created(run, began, tags)
        if known:
            self._client.update_run(run_id, RUNNING)
        # of several values of a metric, MLflow shows the one with the latest time
        at = ended if known is None else int(time.time() * 1000)
        metrics = [Metric(_name(key), value, at, 0) for key, value in run.measures(self._metric).items()]
        metrics += [
            Metric("tick", told, int(then * 1000), step) for step, (told, then) in run.curve().items()
        ]
        metrics += [Metric("retest", value, ended, nth) for nth, value in enumerate(run.retests, start=2)]
        params = [Param(_name(key), repr(value)[:MOST_CHARACTERS]) for key, value in run.constants.items()]
        batches = zip_longest(
            _sliced(metrics, 1000),
            _sliced(params, 100),
            _sliced([RunTag(key, text) for key, text in tags.items()] if known else [], 100),
            fillvalue=(),
        )
        for batch in batches:
            self._client.log_batch(run_id, *batch)
        if run.diff and (known is None or known[1] is None):  # an export may have ended before it
            self._client.log_text(run_id, run.diff, "change.diff")
        self._client.set_terminated(run_id, STATUS.get(run.record.status, "FINISHED"), ended)
        self._runs[run.id] = (run_id, run.verdict)

    def _created(self, run: ExportedRun, began: int, tags: dict[str, str]) -> str:
        own = {ID: run.id, NOTE: run.record.hypothesis[:MOST_CHARACTERS]}
        made = self._client.create_run(self._experiment, began, own | tags, run_name=run.id)
        run_id: str = made.info.run_id
        self._runs[run.id] = (run_id, None)
        return run_id

    def _find_runs(self) -> None:
        token = None
        while True:
            page = self._client.search_runs([self._experiment], max_results=PAGE, page_token=token)
            for run in page:
                if ID in run.data.tags:
                    verdict = None if run.info.status == RUNNING else run.data.tags.get(VERDICT)
                    self._runs[run.data.tags[ID]] = (run.info.run_id, verdict)
            token = page.token
            if not token:
                return


def _name(key: str) -> str:
    """A name that MLflow takes."""
    name = re.sub(r"[^\w\-. /]", "_", key)
    is_path = posixpath.normpath(name) == name and not name.startswith(("/", ".."))
    return name if is_path else re.sub(r"[/.]", "_", name)


def _sliced(items: Sequence[Item], most: int) -> Iterator[Sequence[Item]]:
    """As many as one request takes, in turn."""
    return (items[first : first + most] for first in range(0, len(items), most))
