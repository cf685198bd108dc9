"""Exports to W&B's offline runs: `wandb sync` uploads them."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

import wandb  # pyright: ignore[reportMissingImports]

from triggers.exports.reading import TagReader, Target
from triggers.exports.runs import ExportedRun, TagFacts


class WandbOffline(Target):
    """A folder with an offline run for each experiment. `exported.txt` lists the complete ones."""

    def __init__(self, output: str, tag: TagFacts, reader: TagReader) -> None:
        self.opened_by = f"wandb leet {output}/wandb"
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
        with wandb.init(
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
