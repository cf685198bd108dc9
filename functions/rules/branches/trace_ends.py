"""When a trace ends (by crashes, without progress, in a merge), and where the next one starts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from functions.rules.branches.ancestry import best_of
from functions.rules.keeps.verdict import Key
from state.records import Direction, Experiment


@dataclass(frozen=True)
class Vitals:
    """A trace's best score and counts, as of its newest committed node."""

    best: float | None = None
    """Its lowest score (see `verdict.score`)."""
    commits_since_best: int = 0
    crashes_in_a_row: int = 0


def after_commit(before: Vitals, score: float | None) -> Vitals:
    """The vitals after one more committed node; a score of None is a crash."""
    crashes = before.crashes_in_a_row + 1 if score is None else 0
    if score is not None and (before.best is None or score < before.best):
        return Vitals(score, 0, crashes)
    return Vitals(before.best, before.commits_since_best + 1, crashes)


def death(vitals: Vitals, dead_after_crashes: int, stale_after: int) -> Literal["crashes", "stale"] | None:
    """Why a trace has to end: too many crashes in a row, or too many commits without a new best."""
    if vitals.crashes_in_a_row >= dead_after_crashes:
        return "crashes"
    return "stale" if vitals.commits_since_best >= stale_after else None


def ended_by_merge(selected: Mapping[str, str], tips: Mapping[str, str], goes_on: bool) -> list[str]:
    """The sources that end with a merge: those that have not grown since, if the merge `goes_on`.

    `selected`: tip of each source trace when the merge was selected; `tips`: the same when it is committed.
    """
    return [trace for trace, tip in selected.items() if goes_on and tips.get(trace) == tip]


def next_start(
    kept: Iterable[Experiment], built_on: Collection[str], direction: Direction, main: Key
) -> Experiment | None:
    """Where a trace starts in place of a dead one: the best keep that is not in `built_on`; None is a new root."""
    return best_of((e for e in kept if e.experiment_id not in built_on), direction, main)
