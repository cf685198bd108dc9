"""Exports to folders that Trackio and W&B show: `wandb sync` uploads the latter."""

from __future__ import annotations

import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from triggers.exports.reading import ExportedRun, TagFacts, TagReader, Target


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


class WandbOffline(Target):
    """A folder with an offline run for each experiment. `exported.txt` lists the complete ones."""

    def __init__(self, output: str, tag: TagFacts, reader: TagReader) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when wandb is imported
        import wandb  # pyright: ignore[reportMissingImports]

        self.opened_by = f"wandb leet {output}/wandb"
        self._begin = wandb.init
        self._folder = Path(output).absolute()
        self._tag = tag
        self._list = self._folder / "exported.txt"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._list.touch()
        self._ids = set(self._list.read_text().split())
        self._settings = wandb.Settings(
            silent=True,
            console="off",
            disable_code=True,
            disable_git=True,
            x_disable_meta=True,
            x_save_requirements=False,  # listing the installed packages takes most of the time of a run
            x_disable_stats=True,
        )

    def lacks(self, run: ExportedRun) -> bool:
        return run.id not in self._ids

    def add(self, run: ExportedRun) -> None:
        e = run.record
        with self._begin(
            project=self._tag.name,
            id=run.id,
            name=run.id,
            dir=str(self._folder),
            mode="offline",
            group=e.trace_id,
            tags=[e.status, e.category],
            notes=e.hypothesis,
            config=run.config(),
            settings=self._settings,
        ) as logged:
            for step, (value, at) in run.curve().items():
                logged.log({"tick": value, "_timestamp": at}, step=step)
            logged.summary.update(run.measures(self._tag.metric))
        with self._list.open("a") as known:
            known.write(f"{run.id}\n")
        self._ids.add(run.id)
