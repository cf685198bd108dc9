"""The owner's project in a swarm: its train.py, the copy that runs use, and the baseline of the unchanged script.

Runs get copies of the project's files, links to its data, and a patched copy of its train.py. The owner's own files
are read once, when the worker starts, and never written.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import os
import shutil
import statistics
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from functions.formats.constants import read_constants, reseeded, settable_constants, trained_source
from functions.formats.digits import decimals
from functions.formats.parsing import decoded, last_name, parsed
from functions.kernel.lanes import Source
from functions.kernel.process.remote import Baseline
from functions.swarm.rules.scanning import suggestion
from state.errors import Invalid
from workers.attempt.job import FailedTraining, TrainedRun, TrainingJob
from workers.attempt.source import Unbuildable
from workers.attempt.usage import LARGEST_FILE, bytes_on_disk, remove_tree
from workers.attempt.worktree import JUDGE, Checkout
from workers.swarm.runs import BaselineWatcher, DeviceRuns, Leaving, a_job, seed_of

ASSUMED_BUDGET_S = 300.0
"""Budget where neither the script nor the swarm names one."""
LARGEST_FOLDER = 32 * 1024 * 1024
"""Bytes on disk of a folder that is copied for each run: what is larger is data, and linked."""
_LEFT_OUT = frozenset({"__pycache__", "results.json"})
"""results.json of an earlier run could pass for the result of a run that prints none."""


@dataclass(frozen=True)
class Project:
    """The folder of a train.py, as it was when the worker started."""

    home: Path
    """Where its owner has it."""
    name: str
    """The script's file name."""
    script: SwarmScript
    kept: Path
    """Our copy of the folder."""
    linked: tuple[str, ...]
    """Entries that are linked, not copied: runs read the owner's own."""
    digest: str
    """Digest of its Python files. If it changes, the baseline is measured anew."""

    @asynccontextmanager
    async def checkout(self, home: Path, job: TrainingJob, root: Path) -> AsyncIterator[Checkout]:
        """See Checkouts: the copy has the constants, the budget and the seed of the job."""
        folder = root / f"{job.experiment_id}@{job.attempt}@{job.fence}"
        script = self.script.configured(
            job.config_delta or {}, budget_s=job.budget_s, seed=job.seed, judge=str(JUDGE)
        )
        try:
            try:
                await asyncio.to_thread(self._write, folder / "tree", script)
            except OSError as error:
                raise Unbuildable(
                    f"cannot write the copy of {home}: {error}", hint=f"make room under {str(root)!r}"
                ) from error
            source = Source(hashlib.sha256(script).hexdigest()[:32], None, False)
            yield Checkout(folder / "tree", folder, source, frozenset(), None, None)
        finally:
            await asyncio.to_thread(remove_tree, folder)

    def _write(self, tree: Path, script: bytes) -> None:
        remove_tree(tree.parent)
        shutil.copytree(self.kept, tree, symlinks=True)
        (tree / self.name).write_bytes(script)


def taken(train_py: Path, kept: Path) -> Project:
    """Read the project around a train.py, and copy it to a folder. Blocks.

    Hidden files, environments and caches are left out; large files and folders are linked.

    Raises:
        Invalid: a swarm cannot run the script, or a file cannot be read.
    """
    home = train_py.parent
    try:
        script = read_swarm_script(train_py.read_bytes())
        remove_tree(kept)
        kept.mkdir(parents=True)
        linked = tuple(_take(home, kept, train_py.name))
        (kept / train_py.name).write_bytes(script.source)  # a copy, even if the owner has a link
        digest = _digest(kept)
    except OSError as problem:
        raise Invalid(
            f"{home} cannot be read: {problem}", hint="check --train-py and its folder"
        ) from problem
    except Invalid as problem:
        raise Invalid(f"{train_py}: {problem.detail}", hint=problem.hint) from problem
    return Project(home, train_py.name, script, kept, linked, digest)


def _take(home: Path, kept: Path, script: str) -> Iterator[str]:
    """Copy small entries, and link the rest; answers the linked ones."""
    left_out = {*_LEFT_OUT, script}
    for entry in sorted(home.iterdir()):
        if entry.name.startswith(".") or entry.name in left_out or (entry / "pyvenv.cfg").exists():
            continue
        if entry.is_symlink() or not (entry.is_file() or entry.is_dir()) or not _is_light(entry):
            (kept / entry.name).symlink_to(entry.resolve())
            yield entry.name
        elif entry.is_dir():
            shutil.copytree(
                entry, kept / entry.name, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__")
            )
        else:
            shutil.copy2(entry, kept / entry.name)


def _is_light(entry: Path) -> bool:
    if entry.is_dir():
        return bytes_on_disk(entry, LARGEST_FOLDER) <= LARGEST_FOLDER
    return entry.stat().st_size <= LARGEST_FILE


def _digest(kept: Path) -> str:
    whole = hashlib.sha256()
    for folder, _, names in sorted(os.walk(kept)):
        for name in sorted(names):
            path = Path(folder, name)
            if name.endswith(".py") and not path.is_symlink():
                whole.update(str(path.relative_to(kept)).encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()[:32]


async def measured(
    project: Project,
    runs: DeviceRuns,
    count: int,
    base_s: float | None,
    leaving: Leaving,
    say: Callable[[str], None],
) -> Baseline | None:
    """Run the unchanged script `count` times; None if its owner wants to leave meanwhile.

    Each run has the swarm's base budget, if that is known and the script takes one. The first has the script's own
    seed. The others have different seeds, as repeats of a config do.

    Raises:
        Invalid: a run gives no number. The error has the end of its log.
    """
    own_s = project.script.own_budget_s
    budget_s = own_s if own_s is None else base_s or own_s
    values: list[float] = []
    for nth in range(1, count + 1):
        if not await runs.ready():
            return None
        name = f"baseline-{nth}"
        say(
            f"baseline {nth} of {count}: the unchanged {project.name}"
            + (f", {budget_s:g} s" if budget_s else "")
        )
        job = a_job(name, {}, budget_s or base_s or ASSUMED_BUDGET_S, None if nth == 1 else seed_of(name))
        result, seconds = await runs.of(job, BaselineWatcher(leaving))
        match result:
            case TrainedRun(metric=value):
                values.append(value)
                say(f"  val_bpb {value:.6f} in {seconds:.0f} s")
            case FailedTraining(kind=kind, error=error):
                raise Invalid(
                    f"the baseline cannot be measured: {project.name} gave no number ({kind}). {error}",
                    hint=f"run `python {project.name}` by hand until it prints `val_bpb: NUMBER`, or name the number"
                    " yourself: --skip-baseline --baseline-bpb X",
                )
            case _:
                return None
    sigma = statistics.stdev(values) if len(values) > 1 else None
    return Baseline(
        val_bpb=statistics.fmean(values), sigma=sigma, runs=count, budget_s=budget_s, project=project.digest
    )


def shown(baseline: Baseline) -> str:
    if not baseline.runs:
        return f"baseline: val_bpb {baseline.val_bpb:g}, as you say"
    digits = decimals(baseline.sigma)
    spread = "" if baseline.sigma is None else f", sigma {baseline.sigma:.{digits}f}"
    each = f" of {baseline.budget_s:g} s" if baseline.budget_s is not None else ""
    runs = f"{baseline.runs} run{'' if baseline.runs == 1 else 's'}"
    return f"baseline: val_bpb {baseline.val_bpb:.{digits}f}{spread} ({runs}{each})"


# -- A train.py for a swarm: constants to vary, a budget constant, and reports during the run.

BUDGET: Final = "TOTAL_WALL_CLOCK_TIME"
"""The constant that holds the seconds of a run."""
REPORTING: Final = (
    "from nightjar_report import report",
    f"report(loss, seconds_so_far / {BUDGET})  # in the training loop",
)
"""The two lines that a script without reports lacks."""


@dataclass(frozen=True)
class SwarmScript:
    """A train.py as its owner wrote it."""

    source: bytes
    constants: Mapping[str, object]
    """All that can be set."""
    tunable: Mapping[str, object]
    """Those that a swarm may vary."""
    own_budget_s: float | None
    """The seconds of its own `TOTAL_WALL_CLOCK_TIME`; None where no number is there to be set."""
    reports: bool
    """Whether it calls `report`."""

    def lacks(self) -> Iterator[str]:
        """What the script lacks, each with its remedy."""
        if self.own_budget_s is None:
            yield (
                f"it has no {BUDGET}: every run takes as long as the script likes, and its result is compared with"
                f" those of other lengths. Add `{BUDGET} = 300` at its top level, in seconds, and end the training"
                " after them"
            )
        if not self.reports:
            first, second = REPORTING
            yield (
                "it calls no report: bad runs are not stopped early, and take their whole budget, unless it prints"
                " lines `step 00123 (12.3%) | loss: 2.34 |` and the swarm has stopping.tick_source stdout. Else add\n"
                f"    {first}\n    {second}"
            )

    def without(self, names: Iterable[str]) -> list[str]:
        """Those of the names that are no constant of it."""
        return [name for name in names if name not in self.constants]

    def configured(
        self,
        values: Mapping[str, object],
        *,
        budget_s: float | None,
        seed: int | None,
        judge: str | None = None,
    ) -> bytes:
        """The script with these constants set, and its budget and seeds where it has them; the rest byte for byte.

        A constant that has its value already keeps its text. None: budget or seeds stay as they are. With a `judge`
        the script ends its run where it gives one of them another value.

        Raises:
            Invalid: one of the names is no constant of it.
        """
        wanted = dict(values)
        if budget_s is not None and self.own_budget_s is not None:
            wanted[BUDGET] = int(budget_s) if budget_s == int(budget_s) else budget_s
        text, encoding = decoded(self.source)
        return trained_source(text, wanted, seed, judge).encode(encoding)

    def config(self, values: Mapping[str, object], *, seed: int | None) -> dict[str, object]:
        """The config of a run with these values: all tunable constants and the seeds."""
        return {**self.tunable, **values, **({} if seed is None else reseeded(self.constants, seed))}


def read_swarm_script(source: bytes) -> SwarmScript:
    """Constants that a swarm may vary. The script is not run. Raises Invalid: no Python, or nothing to vary."""
    text, _ = decoded(source)
    constants = settable_constants(text)
    single = read_constants(text).items()
    tunable = {name: value for name, value in single if not isinstance(suggestion(name, value), str)}
    if not tunable:
        raise Invalid(
            "it has no constant that a swarm could vary",
            hint="move what is to be tuned to its top level, as `LEARNING_RATE = 0.001`",
        )
    own = constants.get(BUDGET)
    return SwarmScript(
        source=source,
        constants=constants,
        tunable=tunable,
        own_budget_s=float(own) if isinstance(own, int | float) and not isinstance(own, bool) else None,
        reports=_reports(text),
    )


def _reports(text: str) -> bool:
    """Whether a function called `report` is called anywhere."""
    calls = (node for node in ast.walk(parsed(text)) if isinstance(node, ast.Call))
    return any(last_name(call.func) == "report" for call in calls)
