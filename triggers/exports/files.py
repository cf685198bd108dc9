"""Exports to files and folders: results.tsv, CSV and JSON lines, and the runs of Trackio and W&B.

A file is written anew, and replaced once it is complete. `wandb sync` uploads the runs of W&B.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO

from functions.formats.tsv import FORMULA, HEADER, HEADER_BY_DELTA, rows
from triggers.cli.output import json_text, printable_lines
from triggers.exports.reading import ExportedRun, TagFacts, TagReader, Target

FileFormat = Literal["tsv", "csv", "jsonl"]
COLUMNS = (
    *("experiment_id", "number", "status", "trust", "val_bpb", "judged_val_bpb", "delta_bpb", "gain"),
    *("category", "agent", "description", "hypothesis", "diff_summary", "commit_sha", "base_commit_sha"),
    *("parent_ids", "retests", "trace_id", "worker_id", "gpu_id", "seed", "claimed", "over_budget"),
    *("registered_at", "started_at", "finished_at", "training_seconds", "wall_seconds", "peak_vram_mb"),
    *("error_kind", "error", "config_delta", "metrics"),
)
"""Of a CSV: fields of experiment::history, and the gain."""


class _Terminal(io.TextIOBase):
    """Standard output where a person looks: control characters are escaped."""

    def write(self, text: str) -> int:
        sys.stdout.write(text if text.isprintable() else printable_lines(text.replace("\r\n", "\n")))
        return len(text)

    def flush(self) -> None:
        sys.stdout.flush()


def _stdout() -> TextIO:
    return _Terminal() if sys.stdout.isatty() else sys.stdout  # type: ignore[return-value]  # it has what we use


class RunFile(Target):
    """A file of runs; `-` is standard output. `for_spreadsheet` quotes texts that would be taken for formulas."""

    is_final = False

    def __init__(self, output: str, kind: FileFormat, tag: TagFacts, *, for_spreadsheet: bool) -> None:
        self.needs_whole = kind == "jsonl"
        self.opened_by = f"./nightjar replay {output}"
        self._file = Path(output)
        self._kind = kind
        self._for_spreadsheet = for_spreadsheet
        self._by_delta = tag.by_delta
        self._ids: set[str] = set()
        self._is_complete = False
        self._is_stdout = output == "-"
        self._part = Path(f"{output}.part")
        self._out: TextIO = (
            _stdout() if self._is_stdout else self._part.open("w", encoding="utf-8", newline="")
        )
        # with the line ends of RFC 4180, so that a line end within a text is quoted
        self._csv = (
            csv.writer(self._out, quoting=csv.QUOTE_NONNUMERIC) if for_spreadsheet else csv.writer(self._out)
        )
        if kind == "tsv":
            self._out.write(f"{HEADER_BY_DELTA if self._by_delta else HEADER}\n")
        elif kind == "csv":
            self._csv.writerow(COLUMNS)

    def lacks(self, run: ExportedRun) -> bool:
        return run.id not in self._ids

    def add(self, run: ExportedRun) -> None:
        self._ids.add(run.id)
        match self._kind:
            case "tsv":
                lines = rows([run.record], by_delta=self._by_delta, for_spreadsheet=self._for_spreadsheet)
                self._out.writelines(f"{line}\n" for line in lines)
            case "csv":
                self._csv.writerow([self._cell(run, name) for name in COLUMNS])
            case "jsonl":
                self._out.write(f"{json_text(run.whole)}\n")
        if self._is_complete:
            self._out.flush()

    def complete(self) -> str | None:
        self._out.flush()
        if not (self._is_complete or self._is_stdout):
            os.replace(self._part, self._file)
        self._is_complete = True
        return None

    def close(self) -> None:
        if not self._is_stdout:
            self._out.close()
            self._part.unlink(missing_ok=True)

    def _cell(self, run: ExportedRun, name: str) -> Any:
        value = run.gain if name == "gain" else run.view[name]
        if isinstance(value, dict | list):
            value = json.dumps(value, ensure_ascii=False)
        if isinstance(value, str) and self._for_spreadsheet and FORMULA.match(value):
            return f"'{value}"
        return value


# -- Folders that Trackio and W&B show.


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
