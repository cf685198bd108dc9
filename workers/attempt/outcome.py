"""The result of a run that has ended: its metrics, why it failed, or the order that ended it.

An error may name a file that the run missed. The worker's owner is then told how to let runs have it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from functions.formats.failure_kind import classify_failure
from functions.formats.metrics_block import failure_tail, is_metric_name, newest_lines
from functions.formats.printed_score import nearest
from functions.kernel.process.run_files import (
    folder_of_data,
    folders_of,
    if_opened,
    if_read,
    inside,
    is_below,
    is_write,
    left_behind,
    link_for,
    strings_of,
    to_fetch,
    untracked,
)
from state.errors import NightjarError
from workers.attempt.child import EndedCommand
from workers.attempt.isolation import Reach
from workers.attempt.job import FailedTraining, HaltedRun, TrainedRun, TrainingResult
from workers.attempt.worktree import Checkout, read_inside

_MOST_PATHS, _MOST_REMEDIES = 200, 3
_NOT_FOUND = re.compile(
    r"No such file|not found|[Nn]ot exist|\b[Mm]issing\b|No module named|[Cc]orrupt|(?:[Uu]nable|[Ff]ailed) to open"
    r"|(?:[Cc]an(?:not|'t)|[Cc]ould(?: not|n't)) (?:open|find|load|read)|non-?existent"
    r"|\b[Nn]o (?:training |valid )?(?:data|files?|images?|samples?|examples|objects|records|shards)\b"
    r"|[Ff]ound (?:no|0)\b|\b[Ee]mpty\b|num_samples=0|at least one array|list index out of range|StopIteration"
)
"""Words of a run that lacks a file, or whose search for files found none."""
_REFUSED = re.compile(
    r"PermissionError|Permission denied|Operation not permitted|Read-only file system"
    r"|No such file or directory: '/"
)
_NO_NETWORK = re.compile(
    r"Network is unreachable|[Nn]ame (?:resolution|or service not known)|Max retries exceeded|urlopen error"
    r"|[Cc]ould(?:n't| not) (?:connect|reach|resolve)|ConnectionError|ConnectError"
)
_MODULE = re.compile(r"No module named '(\w+)")
_ISOLATED = (
    "runs are isolated here, and write in their own folder alone: the worker's owner may start it with --data-dir"
    " FOLDER for data that they read, --network on, or --isolation limits"
)
_OFFLINE = "runs have no network here: download before, or start `up` or the worker with --network on"


@dataclass(frozen=True)
class FailedRun:
    """A failed run of a project, and what it could reach."""

    built: Checkout
    repo: Path
    links: Sequence[str]
    reach: Reach | None
    """None: whatever its user may."""
    data: Path
    """The data directory of the worker."""

    def remedies(self, error: str) -> list[str]:
        """Remedies for a file that was not found, or for a refusal. Blocks."""
        is_refused, is_lacking = _REFUSED.search(error) is not None, _NOT_FOUND.search(error) is not None
        if self.reach is not None and not self.reach.network and _NO_NETWORK.search(error):
            return [_OFFLINE]
        if not is_refused and not is_lacking:
            return []
        found = [*dict.fromkeys(self._of_paths(error, is_refused=is_refused))]
        if not found and is_lacking and self.built.files:
            lacking = [to_fetch(self.repo, path) for path in self.built.empty]
            found = [*dict.fromkeys([*lacking, *left_behind(self.repo, self.links, self._readable)])]
        if not found and is_refused and self.reach is not None:
            return [_ISOLATED]
        return found[:_MOST_REMEDIES]

    @property
    def _readable(self) -> list[Path] | None:
        """Folders for which no --data-dir is suggested: readable ones, and the data directory."""
        if self.reach is None:
            return None
        return [*map(Path, (*(self.reach.reads or ()), *self.reach.writes)), self.data]

    def _of_paths(self, error: str, *, is_refused: bool) -> Iterator[str]:
        is_written = any(map(is_write, error.splitlines()))
        modules = (f"{module}{end}" for module in _MODULE.findall(error) for end in (".py", ""))
        for name in islice(dict.fromkeys((*strings_of(error), *modules)), _MOST_PATHS):
            place = Path(os.path.normpath(self.built.path / os.path.expanduser(name)))
            with contextlib.suppress(OSError, RuntimeError, ValueError, NightjarError):  # it may be any text
                remedy = (
                    self._of_closed(place, is_refused=is_refused)
                    or self._of_output(place, is_written=is_written)
                    or self._of_left_behind(name, place)
                )
                if remedy:
                    yield remedy

    def _of_closed(self, place: Path, *, is_refused: bool) -> str | None:
        """For what is there, and closed to confined runs."""
        readable = self._readable
        if readable is None:
            return None
        if not is_below(place, readable):
            real = place.resolve()
            folder = folder_of_data(real)
            return f"runs may not read {real} here: {if_opened([folder])}" if folder else None
        is_linked = place.is_relative_to(self.built.path) and is_below(place, [self.repo])
        there = place if place.exists() else place.parent
        if is_refused and is_linked and os.access(there, os.R_OK):
            path = place.relative_to(self.built.path)
            return f"runs read {path} where the project has it, and may not write there"
        return None

    def _of_output(self, place: Path, *, is_written: bool) -> str | None:
        """For a folder of results that the project's folder has, and no commit."""
        if not (is_written and self.built.files and place.is_relative_to(self.built.path)):
            return None
        folder = place if (self.repo / place.relative_to(self.built.path)).is_dir() else place.parent
        path = os.path.relpath(folder, self.built.path)
        if folder.exists() or not (self.repo / path).is_dir():
            return None
        return f"runs have no folder {path}: the script makes it by os.makedirs({path!r}, exist_ok=True)"

    def _of_left_behind(self, name: str, place: Path) -> str | None:
        """For what the project's folder has, and the checkout has not."""
        if os.path.isabs(name) and not place.is_relative_to(self.built.path):
            return None
        path = os.path.relpath(place, self.built.path)
        if not self.built.files or os.path.lexists(place):
            return None
        theirs = Path(os.path.normpath(self.repo / path))
        if not theirs.exists():
            path = str(inside(path))
            theirs = self.repo / path
        if not theirs.exists() or theirs == self.repo:
            return None
        real, root = theirs.resolve(), self.repo.resolve()
        if not path.startswith("..") and (link := self._link_for(path)):
            told = "commit it" if path.endswith(".py") else if_read([link])
            return f"{path} is in the project's folder, but in no commit: {told}"
        if not real.is_relative_to(root):
            return f"{path} leads out of the project, to {real}: name it by that path"
        link = self._link_for(str(real.relative_to(root)))  # where a link of the commit leads to
        return f"{path} leads to {link}, which is in no commit: {if_read([link])}" if link else None

    def _link_for(self, path: str) -> str | None:
        """The value of `--link` for a path of the project; None where git carries it."""
        link = link_for(self.repo, path, folders_of(self.built.files))
        return link if untracked(self.repo, link) else None


def outcome(
    ended: EndedCommand, built: Checkout, metric: str, gpu_class: str, *, is_scored: bool = False
) -> TrainingResult:
    """A run that exited with 0 and a finite metric is trained, even if it was told to stop, or hung afterwards.

    `is_scored`: the tag's evaluator measures the metric afterwards. Then the script need not print it, and a stopped
    run has none.
    """
    if ended.cause == "lost":
        return HaltedRun("lost")
    if (harm := built.harm()) is not None:
        return FailedTraining("evaluator", f"{harm}\n{failure_tail(ended.log)}".rstrip())
    printed = ended.printed.metrics
    if metric not in printed:
        written = _results_file(built.path)
        printed = written if metric in written else printed or written
    value = printed.get(metric, math.nan)
    is_whole = math.isfinite(value) or (is_scored and metric not in printed)
    ends_here = ("timeout", "excess", "stop") if is_scored else ("timeout", "excess")
    has_ended = ended.returncode == 0 or ended.cause == "hung"
    if has_ended and ended.cause not in ends_here and is_whole:
        return TrainedRun(
            metrics={name: number for name, number in printed.items() if math.isfinite(number)},
            evaluator_hash=built.evaluator_hash,
            gpu_class=gpu_class,
            log_tail=newest_lines(ended.log),
            metric=value,
            reported=value if is_scored and math.isfinite(value) else None,
            time=ended.time,
            hung=ended.cause == "hung",
        )
    if ended.cause == "stop":
        return HaltedRun("stop")
    return _failed(ended, printed, metric)


def not_started(error: OSError) -> FailedTraining:
    """The failure of a run whose process could not be started; it is not the experiment's fault."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = (
        "make room on the worker's disk"
        if is_full
        else "check --command, --python and --isolation of the worker"
    )
    return FailedTraining("infra", f"the run could not be started: {error}; {remedy}")


def _failed(ended: EndedCommand, printed: Mapping[str, float], metric: str) -> FailedTraining:
    wanted = {metric: printed[metric]} if metric in printed else {}
    kind = classify_failure(ended.log, ended.returncode, timed_out=ended.cause == "timeout", metrics=wanted)
    if ended.cause == "excess" and ended.excess is not None:
        kind, reason = ended.excess.kind, ended.excess.reason
    elif ended.cause == "timeout":
        reason = "still running at its time limit"
        if metric in printed:
            reason += (
                f", after it had printed {metric} {printed[metric]:g}; a run that hangs is ended soon, and"
                " its score counts, where that is the last thing it prints, behind a line `---`"
            )
    elif ended.returncode is not None and ended.returncode < 0:
        reason = f"ended by signal {-ended.returncode}"
    elif ended.returncode != 0:
        reason = f"exited with {ended.returncode}"
    elif metric in printed:
        reason = f"{metric} is {printed[metric]}"
    elif printed:
        reason = f"{metric} is not among the metrics printed: {', '.join(sorted(printed)[:20])}"
        reason += nearest(ended.printed, metric, ended.log)
    else:
        reason = f"exited with 0 but printed no line `{metric}: NUMBER`"
        reason += nearest(ended.printed, metric, ended.log)
    return FailedTraining(kind, f"{reason}\n{failure_tail(ended.log)}".rstrip())


def _results_file(tree: Path) -> dict[str, float]:
    """The numbers in `results.json` beside the script, for scripts that print no metrics block."""
    content = read_inside(tree, "results.json")
    if content is None:
        return {}
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    numbers: dict[str, float] = {}
    for name, value in list(found.items())[:256]:
        if is_metric_name(name.lower()) and isinstance(value, int | float) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):
                numbers[name.lower()] = float(value)
    return numbers
