"""Exports to a project of Trackio in a folder of its own."""

from __future__ import annotations

import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from triggers.exports.reading import TagReader, Target
from triggers.exports.runs import ExportedRun, TagFacts


class TrackioProject(Target):
    """A run for each experiment: ticks at their steps, then all numbers at the last one."""

    def __init__(self, output: str, tag: TagFacts, reader: TagReader) -> None:
        folder = Path(output).absolute()
        os.environ["TRACKIO_DIR"] = str(folder)  # read when trackio is imported
        from trackio.sqlite_storage import SQLiteStorage  # pyright: ignore[reportMissingImports]

        self.opened_by = f"TRACKIO_DIR={output} trackio show --project {tag.name}"
        self._tag = tag
        self._storage = SQLiteStorage
        folder.mkdir(parents=True, exist_ok=True)
        # Trackio opens the database for each run. While a connection is held, SQLite does not close it in between.
        self._held = sqlite3.connect(SQLiteStorage.init_db(tag.name))
        self._held.execute("SELECT COUNT(*) FROM configs").fetchone()
        self._ids = {record["name"] for record in SQLiteStorage.get_run_records(tag.name)}

    def lacks(self, run: ExportedRun) -> bool:
        return run.id not in self._ids

    def add(self, run: ExportedRun) -> None:
        """All rows of a run are written at once."""
        _, ended = run.times()
        curve = run.curve()
        self._storage.bulk_log(
            project=self._tag.name,
            run=run.id,
            run_id=run.id,
            metrics_list=[*({"tick": value} for value, _ in curve.values()), run.measures(self._tag.metric)],
            steps=[*curve, max(curve, default=0)],
            timestamps=[
                *(datetime.fromtimestamp(at, UTC).isoformat() for _, at in curve.values()),
                ended.isoformat(),
            ],
            config=run.config(),
        )
        self._ids.add(run.id)

    def close(self) -> None:
        self._held.close()
