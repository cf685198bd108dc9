"""The trusted score of an attempt: the tag's evaluator, run after the training from the base commit's own files.

No code of the experiment runs in the evaluator's process: see scoring_path/nightjar_evaluator.py.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from functions.formats.failure_kind import classify_failure
from functions.formats.metrics_block import FailureKind, failure_tail, newest_lines
from functions.formats.printed_score import nearest
from functions.formats.train_command import words_of
from functions.kernel.lanes import Order, Source
from workers.attempt.child import EndedCommand
from workers.attempt.isolation import CACHES, Reach
from workers.attempt.job import FailedTraining, HaltedRun, TrainedRun, TrainingJob, TrainingResult, Watcher
from workers.attempt.source import Unbuildable
from workers.attempt.usage import remove_tree
from workers.attempt.worktree import Checkout, write_base
from workers.slot import Slot

SCORE = Path(__file__).with_name("scoring_path") / "score.py"
_UNSCORED = 79
_KINDS: Mapping[int, FailureKind] = {80: "leak", 81: "nan", 82: "timeout"}
"""By the exit statuses of nightjar_evaluator's errors; of `Unscored` itself by what it says."""
_TREE = "NIGHTJAR_TREE"
_SPLITS, _HIDDEN_DATA = "NIGHTJAR_HIDDEN_SPLITS", "NIGHTJAR_HIDDEN_DATA"
UNCONFINED = (
    "its tag has a hidden split, and this worker does not confine its runs: --isolation landlock or bwrap"
)


@dataclass(frozen=True)
class ScoringFolders:
    """Where an evaluator runs; made when no process of the training lives any more."""

    files: Path
    """The base commit's files."""
    temporary: Path
    caches: Path
    """For the kernels that it compiles: who wrote them could have it run anything."""
    theirs: Path
    """For the predictor's temporary files."""
    log: Path
    hidden: Path | None = None
    """The folder with the data of hidden splits, which only the evaluator reads."""
    splits: Sequence[str] = ()

    def argv(
        self,
        python: str,
        command: str,
        tree: Path,
        child_path: Path,
        training: Reach | None,
        predictor: Reach | None,
    ) -> list[str]:
        """The evaluator's command line, by what it may touch. Raises Unbuildable: the base has no such script."""
        _, script, *arguments = words_of(command)
        if not (self.files / script).is_file():
            raise Unbuildable(
                f"the evaluator's command runs {script}, which is no file of the tag's base commit",
                hint="an operator sets up another tag whose base commit has it",
            )
        place = {
            "tree": str(tree),
            "path": str(child_path),
            "folder": str(self.theirs),
            "caches": CACHES,
            "evaluator": training and self._reach(training)._asdict(),
            "predictor": predictor and predictor._asdict(),
        }
        return [python, "-I", "-S", str(SCORE), json.dumps(place), str(self.files / script), *arguments]

    def _reach(self, training: Reach) -> Reach:
        """The evaluator's: it reads what a training reads, and writes its own folders."""
        writes = [str(folder) for folder in (self.files, self.temporary, self.caches)]
        return training._replace(
            writes=writes,
            reads=[*(training.reads or ()), str(SCORE.parent), *([str(self.hidden)] if self.hidden else [])],
            together=None,
        )

    def env(self, training: Mapping[str, str], tree: Path) -> dict[str, str]:
        """The evaluator's whole environment: a training's, without its code's path, temporary files and caches."""
        own = {_TREE: str(tree), "TMPDIR": str(self.temporary)}
        own |= {name: str(self.caches / folder) for name, folder in CACHES.items()}
        if self.splits:
            own |= {_SPLITS: ",".join(self.splits)} | (
                {_HIDDEN_DATA: str(self.hidden)} if self.hidden else {}
            )
        return {name: value for name, value in training.items() if name != "PYTHONPATH"} | own


async def set_stage(slot: Slot, job: TrainingJob, built: Checkout) -> ScoringFolders:
    """Write the base commit's files, with data links, beside the tree. Raises Unbuildable: clone or disk."""
    folder = built.folder / "scoring"
    files, temporary, caches, theirs, log = (
        folder / name for name in ("files", "tmp", "caches", "theirs", "log.txt")
    )
    stage = ScoringFolders(
        *(files, temporary, caches, theirs, log),
        hidden=slot.hidden_data if job.splits else None,
        splits=job.splits,
    )
    try:
        built.folder.chmod(0o700)  # the training may have taken the right to write there, or made the folder
        remove_tree(folder)
        for place in (stage.files, stage.temporary, stage.caches, stage.theirs):
            place.mkdir(parents=True)
        await write_base(slot.repo, job, stage.files, slot.links)
    except OSError as error:
        raise Unbuildable(
            f"cannot write the evaluator's files: {error}",
            hint=f"make room under {str(built.folder.parent)!r}",
        ) from error
    return stage


def scored(
    ended: EndedCommand, trained: TrainedRun, stage: ScoringFolders, built: Checkout, metric: str
) -> TrainingResult:
    """A training's result with the value that the evaluator measured in the place of the one that it printed."""
    if ended.cause in ("lost", "stop"):
        return HaltedRun(ended.cause)
    if is_changed(stage, built):
        return FailedTraining(
            "evaluator", f"the trusted files were changed while the experiment was scored\n{trained.log_tail}"
        )
    value = ended.printed.plain
    if ended.cause == "exit" and ended.returncode == 0 and value is not None and math.isfinite(value):
        block = ended.printed.block or {}
        own = {name: number for name, number in block.items() if math.isfinite(number)}
        hidden = hidden_numbers(ended.hidden)
        if missing := [name for name in stage.splits if name not in hidden]:
            return FailedTraining(
                "no_metrics",
                f"the evaluator sent no number of the split {missing[0]!r}: see nightjar_evaluator.measure_hidden",
            )
        return replace(
            trained,
            metric=value,
            metrics=trained.metrics | own | {metric: value},
            log_tail=joined(trained.log_tail, newest_lines(ended.log)),
            score="trusted",
            hidden={name: number for name, number in hidden.items() if math.isfinite(number)},
        )
    return _unscored(ended, value, metric)


def hidden_numbers(sent: bytes) -> dict[str, float]:
    """Numbers of hidden splits: a line `<split> <number>` for each. Other lines count for nothing."""
    found: dict[str, float] = {}
    for line in sent.decode("utf-8", "replace").splitlines():
        name, _, number = line.partition(" ")
        with contextlib.suppress(ValueError):
            found[name] = float(number)
    return found


def is_changed(stage: ScoringFolders, built: Checkout) -> bool:
    """Whether the evaluator's files are not those of the base commit (any more)."""
    return built.guard is None or built.guard.fingerprint(stage.files) != built.evaluator_hash


def _unscored(ended: EndedCommand, value: float | None, metric: str) -> FailedTraining:
    if ended.cause == "timeout":
        kind: FailureKind = "timeout"
        reason = "the run's time limit came while the evaluator scored it"
    elif ended.cause == "excess" and ended.excess is not None:
        kind, reason = ended.excess.kind, f"the evaluator's run was ended: {ended.excess.reason}"
    elif ended.returncode is not None and (ended.returncode in _KINDS or ended.returncode == _UNSCORED):
        said = ended.log.rpartition("\nunscored: ")[2]
        kind = _KINDS.get(ended.returncode) or classify_failure(said, ended.returncode, metrics={})
        return FailedTraining(kind, f"the evaluator gave it no score: {newest_lines(said)}")
    elif ended.returncode != 0:
        kind = classify_failure(ended.log, ended.returncode, metrics={})
        reason = f"the evaluator's command exited with {ended.returncode}"
    elif value is None:
        kind, reason = (
            "no_metrics",
            f"the evaluator's command exited with 0 but printed no line `{metric}: NUMBER`"
            + nearest(ended.printed, metric, ended.log),
        )
    else:
        kind, reason = "nan", f"the evaluator measured {metric} as {value}"
    return FailedTraining(kind, f"{reason}\n{failure_tail(ended.log)}".rstrip())


def joined(training: str, scoring: str, whose: str = "the evaluator") -> str:
    """The lines of a training, then those of its evaluator."""
    return f"{training}\n[{whose}]\n{scoring}" if scoring else training


class ScoringWatcher:
    """The lab's side of a scoring or a check: its log is shown below the training's; implements
    workers.attempt.job.Watcher.
    """

    def __init__(self, watcher: Watcher, training_log: str, whose: str = "the evaluator") -> None:
        self._watcher = watcher
        self._training_log = training_log
        self._whose = whose

    async def built(self, source: Source) -> Order:
        return await self._watcher.built(source)

    async def tick(self, metric: float, progress: float) -> Order:
        return await self._watcher.poll()  # its numbers are no progress of the training

    async def poll(self) -> Order:
        return await self._watcher.poll()

    async def tail(self, text: str) -> None:
        await self._watcher.tail(joined(self._training_log, text, self._whose))
