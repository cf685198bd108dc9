"""What an experiment is made from: the ancestors that its parents' ids name, and what stands beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from functions.rules.keeps.verdict import Key, compare, score
from state.records import Direction, Experiment, Status

Siblings = Literal["until_first_keep", "root", "always", "never"]
"""When siblings are shown: while the branch has kept nothing, to a new root alone, always, or never."""

FAILED: frozenset[Status] = frozenset({"discard", "crash", "timeout"})
JUDGED: frozenset[Status] = frozenset({"keep", *FAILED})


@dataclass(frozen=True)
class Branch:
    """What stands under some parents; every list is in the order of the experiments' numbers."""

    ancestors: list[Experiment]
    """From the roots to the parents, each once."""
    kept: list[Experiment]
    failures: list[Experiment]
    """That no keep was built on since."""
    base: Experiment | None
    """The best kept one: the code to check out; None is the tag's base."""
    best: Experiment | None
    """The best value, kept or not."""


def unread(parent_ids: Iterable[str], known: Mapping[str, Experiment]) -> list[str]:
    """Ancestors that have to be read before `branch` can answer, as far as the known ones name them."""
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
) -> Branch:
    """What stands under these parents: it depends on their ancestors alone, whatever other branches do.

    The newest `max_keep` keeps and `max_failed` failures are shown (None: all). Base and best are among those that
    may be compared under the tag's `main` key.

    Raises:
        KeyError: an ancestor is not known.
    """
    above = _in_order(_reached(parent_ids, known, strict=True))
    keeps = [e for e in above if e.status == "keep"]
    since = _in_order(_reached(parent_ids, known, until=lambda e: e.status == "keep"))
    return Branch(
        ancestors=above,
        kept=_newest(keeps, max_keep),
        failures=_newest([e for e in since if e.status in FAILED and _tells(e)], max_failed),
        base=best_of(keeps, direction, main),
        best=best_of((e for e in above if e.status in JUDGED), direction, main),
    )


def best_of(experiments: Iterable[Experiment], direction: Direction, main: Key) -> Experiment | None:
    """The best value that may be compared under the tag's main key; of equal ones the first."""
    measured = [
        (score(e.val_bpb, direction), e.number, e)
        for e in experiments
        if e.val_bpb is not None and compare(main, Key(e.gpu_class, e.evaluator_hash, e.budget_seconds))[1]
    ]
    return min(measured)[2] if measured else None


def siblings(
    under: Branch,
    others: Iterable[Experiment],
    mode: Siblings,
    *,
    finished_until: int | None = None,
    most: int | None = None,
) -> list[Experiment]:
    """Of `others` those that were tried beside the branch, so that nobody tries them again: the newest `most`.

    Beside it stands who has a parent in it without being of it, and every root that it did not come from. With
    `finished_until` (a finish number) only those count that were judged by then: what a selection is shown stays
    the same however many finish after it was made.
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
        and (finished_until is None or (e.finish_number or 0) <= finished_until)
    ]
    return _newest(_in_order(beside), most)


def _tells(e: Experiment) -> bool:
    """Whether how it ended says something of its idea: no fault of the infrastructure, and no retest of another."""
    return e.error_kind != "infra" and e.retest_of is None


def _reached(
    parent_ids: Iterable[str],
    known: Mapping[str, Experiment],
    *,
    until: Callable[[Experiment], bool] = lambda _: False,
    strict: bool = False,
) -> list[Experiment]:
    """Each ancestor once; of those that `until` holds of neither they themselves nor what is behind them."""
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
    # A parent is registered before its children, so its number is lower.
    return sorted(experiments, key=lambda e: e.number)


def _newest(experiments: list[Experiment], most: int | None) -> list[Experiment]:
    return experiments if most is None else experiments[max(0, len(experiments) - most) :]
