"""Parents and ancestors of an experiment: its branch, with keeps, failures and siblings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from functions.experiments.rules.verdict import Key, compare, key_of
from state.errors import Conflict, Invalid
from state.ids import number_of
from state.records import JUDGED, OPEN, Direction, Experiment, Status, score

Siblings = Literal["until_first_keep", "root", "always", "never"]
"""When siblings are shown: while the branch has no keep, for a new root, always, or never."""

FAILED: frozenset[Status] = frozenset({"discard", "crash", "timeout"})


@dataclass(frozen=True)
class BranchHistory:
    """The parents and all their ancestors. Every list is in the order of the experiments' numbers."""

    ancestors: list[Experiment]
    """From the roots to the parents, each once."""
    kept: list[Experiment]
    failures: list[Experiment]
    """Failures with no keep between them and the parents."""
    base: Experiment | None
    """The best keep: the code to check out; None is the tag's base."""
    best: Experiment | None
    """The best value, kept or not."""


def unread(parent_ids: Iterable[str], known: Mapping[str, Experiment]) -> list[str]:
    """Ids of ancestors that have to be read before `branch` is called, as named by the known experiments."""
    named = set(parent_ids)
    for experiment in _reached(parent_ids, known):
        named.update(experiment.parent_ids)
    return sorted(named - known.keys())


def branch(
    parent_ids: Sequence[str],
    known: Mapping[str, Experiment],
    direction: Direction,
    main: Key,
    *,
    max_keep: int | None = None,
    max_failed: int | None = None,
) -> BranchHistory:
    """The branch that ends with these parents; it depends on their ancestors alone.

    It holds the newest `max_keep` keeps and `max_failed` failures (None: all). Base and best are comparable under
    the tag's `main` key.

    Raises:
        KeyError: an ancestor is not known.
    """
    above = _in_order(_reached(parent_ids, known, strict=True))
    keeps = [e for e in above if e.status == "keep"]
    since = _in_order(_reached(parent_ids, known, until=lambda e: e.status == "keep"))
    return BranchHistory(
        ancestors=above,
        kept=_newest(keeps, max_keep),
        failures=_newest([e for e in since if e.status in FAILED and _tells(e)], max_failed),
        base=best_of(keeps, direction, main),
        best=best_of((e for e in above if e.status in JUDGED), direction, main),
    )


def best_of(experiments: Iterable[Experiment], direction: Direction, main: Key) -> Experiment | None:
    """The experiment with the best value comparable under the tag's main key; of equal ones the first."""
    measured = [
        (score(e.own_value, direction), e.number, e)
        for e in experiments
        if e.own_value is not None and not e.is_claim and compare(main, key_of(e))[1]
    ]
    return min(measured)[2] if measured else None


def siblings(
    under: BranchHistory,
    others: Iterable[Experiment],
    mode: Siblings,
    *,
    finished_until: int | None = None,
    most: int | None = None,
) -> list[Experiment]:
    """The newest `most` of `others` that were tried beside the branch.

    A sibling has a parent in the branch but is not in it. For a root, every other root is a sibling. Experiments that
    were judged after the finish number `finished_until` do not count, so a selection always shows the same siblings.
    """
    shown = {
        "until_first_keep": all(e.status != "keep" for e in under.ancestors),
        "root": not under.ancestors,
        "always": True,
        "never": False,
    }
    if not shown[mode]:
        return []
    path = {e.experiment_id for e in under.ancestors}
    beside = [
        e
        for e in others
        if e.status in JUDGED
        and _tells(e)
        and e.experiment_id not in path
        and (not e.parent_ids or path.intersection(e.parent_ids))
        and (finished_until is None or (not e.is_claim and (e.finish_number or 0) <= finished_until))
    ]
    return _newest(_in_order(beside), most)


def _tells(e: Experiment) -> bool:
    """Whether its result is about its idea: not a fault of the infrastructure, and not a retest."""
    return e.error_kind != "infra" and e.retest_of is None


def _reached(
    parent_ids: Iterable[str],
    known: Mapping[str, Experiment],
    *,
    until: Callable[[Experiment], bool] = lambda _: False,
    strict: bool = False,
) -> list[Experiment]:
    """Each ancestor once. The walk stops at an ancestor for which `until` is true, and leaves it out."""
    waiting, seen = list(parent_ids), set[str]()
    reached: list[Experiment] = []
    while waiting:
        name = waiting.pop()
        if name in seen or not (strict or name in known):
            continue
        seen.add(name)
        experiment = known[name]
        if not until(experiment):
            reached.append(experiment)
            waiting += experiment.parent_ids
    return reached


def _in_order(experiments: Iterable[Experiment]) -> list[Experiment]:
    # a parent is registered before its children, so its number is lower
    return sorted(experiments, key=lambda e: e.number)


def _newest(experiments: list[Experiment], most: int | None) -> list[Experiment]:
    return experiments if most is None else experiments[max(0, len(experiments) - most) :]


def check_parents(tag: str, parent_ids: Sequence[str], found: Mapping[str, Experiment]) -> None:
    """Check the parents of an idea. Raises Invalid: not of the tag. Conflict: no result, or an earlier epoch."""
    for parent in parent_ids:
        e = found.get(parent)
        if e is None or e.tag != tag or e.retest_of is not None:
            raise Invalid(
                f"parent {parent!r} is not an experiment of {tag!r}",
                hint="POST /api/trace/list shows the graph; omit parent_ids to have a parent chosen",
                fields={"code": "unknown_parent"},
            )
        if e.status not in JUDGED:
            is_open = e.status in OPEN
            wait = f"wait for it with GET /api/experiment/{parent}/wait, or " if is_open else ""
            raise Conflict(
                f"parent {parent!r} is {e.status}: a parent must have a result",
                hint=f"{wait}name another: POST /api/trace/list shows the graph",
                fields={"code": "unfinished_parent" if is_open else "no_result"},
            )
        if e.outdated:
            raise Conflict(
                f"parent {parent!r} finished after the epoch of its selection: it cannot be a parent",
                hint="build on a node of the present epoch: POST /api/trace/list shows them",
                fields={"code": "stale_epoch"},
            )


def parents_named(parent_ids: Sequence[str], base: Experiment | None = None) -> dict[str, Any]:
    """The part of a selection that names its parents and the code to check out."""
    return {
        "parent_ids": list(parent_ids),
        "local_selection": [number_of(parent) for parent in parent_ids],
        "base_experiment_id": base.experiment_id if base else None,
        "base_commit_sha": base.commit_sha if base else None,
    }
