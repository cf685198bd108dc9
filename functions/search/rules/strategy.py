"""A tag's search mode: by its last experiments, or by the yields of the modes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import BaseModel

from state.policy import WINDOW, Adapt
from state.records import End, Mode, Strategy, stamp, view_of

# -- The kind of a try: which of the search's four modes it belongs to, by its category and what was kept before it.

OF_CATEGORY: Final[dict[str, Mode]] = {
    "combination": "combine",
    "ablation": "ablation",
    "simplification": "ablation",
}
"""Categories that are a mode by themselves; all others are explored or exploited."""
NO_CATEGORY: Final = "other"
"""Category of a try whose agent names none."""


def kind_of(end: End, kept: str | None) -> Mode:
    """Combine and ablation by category or parents; exploit in the category of the newest keep, else explore."""
    if end.merges:
        return "combine"
    return OF_CATEGORY.get(end.category, "exploit" if end.category == kept else "explore")


def with_kinds(ends: Iterable[End]) -> Iterator[tuple[End, Mode]]:
    """Every try with its kind, from ends oldest first; baselines and faults of the infrastructure are no tries."""
    kept = None
    for end in ends:
        if end.baseline or end.error_kind == "infra":
            continue
        yield end, kind_of(end, kept)
        kept = kept_category([end]) or kept


def kept_category(ends: Iterable[End]) -> str | None:
    """The category of the newest keep that can be gone on with, of ends oldest first; None where there is none."""
    kept = [
        end.category
        for end in ends
        if end.status == "keep" and not (end.baseline or end.category in OF_CATEGORY)
    ]
    return kept[-1] if kept else None


# -- The search's mode and category by how often each was kept lately: a bandit that forgets.
#
# An upper bound of each yield decides, as in the Bayesian upper confidence bounds of Kaufmann, Cappé and Garivier
# (2012), with evidence that is discounted as in Garivier and Moulines (2011). The bound is the posterior's mean plus
# one standard deviation: no chance is drawn, so that all who ask of the same facts agree.

MEMORY: Final = 20
"""Tries after which evidence has faded to 1 / e."""
PRIOR_KEEPS: Final = 1.0
PRIOR_OTHERS: Final = 3.0
"""The prior of a mode or category: one try in four is kept, as in public logs."""
MODES: Final[tuple[Mode, ...]] = ("explore", "exploit", "combine", "ablation")
"""In this order where their bounds are equal."""

Arm = TypeVar("Arm")


@dataclass(frozen=True)
class Yield:
    """How often something was kept; old tries count for less than one."""

    keeps: float = 0.0
    tries: float = 0.0

    @property
    def expected(self) -> float:
        """The share of the next tries that is kept: the mean of the Beta posterior."""
        return (PRIOR_KEEPS + self.keeps) / (PRIOR_KEEPS + PRIOR_OTHERS + self.tries)

    @property
    def bound(self) -> float:
        """That share, if all goes well: one standard deviation more."""
        weight = PRIOR_KEEPS + PRIOR_OTHERS + self.tries
        return self.expected + math.sqrt(self.expected * (1 - self.expected) / (weight + 1))

    def later(self, weight: float, *, kept: bool) -> Yield:
        return Yield(self.keeps + weight * kept, self.tries + weight)


NONE: Final = Yield()


def yields(outcomes: Iterable[tuple[Arm, bool]]) -> dict[Arm, Yield]:
    """The yield of each arm that was tried, from (arm, kept), oldest first."""
    found: dict[Arm, Yield] = {}
    for age, (arm, kept) in enumerate(reversed([*outcomes])):
        found[arm] = found.get(arm, NONE).later(math.exp(-age / MEMORY), kept=kept)
    return found


def mode_yields(ends: Iterable[End]) -> dict[Mode, Yield]:
    return yields((kind, end.status == "keep") for end, kind in with_kinds(ends))


def best_mode(ends: Sequence[End], near_misses: int) -> tuple[Mode, Yield]:
    """The mode with the highest bound, and its yield; needs two near misses to combine, a keep to go on with."""
    found = mode_yields(ends)
    is_possible: dict[Mode, bool] = {
        "explore": True,
        "exploit": kept_category(ends) is not None,
        "combine": near_misses >= 2,
        "ablation": True,
    }
    bounds: dict[Mode, float] = {mode: found.get(mode, NONE).bound for mode in MODES if is_possible[mode]}
    best = max(bounds, key=bounds.__getitem__)
    return best, found.get(best, NONE)


def best_category(ends: Sequence[End], categories: Sequence[str]) -> str:
    """The category to explore: the one with the highest bound; of equals the first in `categories`.

    Not that of the newest keep, which is what exploit means, and none that is a mode by itself.
    """
    found = yields((end.category, end.status == "keep") for end, _ in with_kinds(ends))
    passed_over = {NO_CATEGORY, kept_category(ends), *OF_CATEGORY}
    return max(
        (c for c in categories if c not in passed_over), key=lambda category: found.get(category, NONE).bound
    )


# -- A tag's search mode, decided from its last finished experiments.

MIN_FINISHED = 5
"""Finished experiments below which the search explores."""
CRASH_RATE = 0.5
"""Share of crashes above which it makes small changes."""
KEEP_RATE = 0.3
"""Share of keeps above which it goes on in the same way."""
PLATEAU_AFTER = 20
"""Finished experiments above which no keep is a plateau."""
TEMPERATURES: Final[dict[Mode, float]] = {"explore": 0.8, "exploit": 0.5, "combine": 0.5, "ablation": 0.3}
"""Under `yields`; the published rule has the same where nothing crashes."""


def is_due(strategy: Strategy, finished: int) -> bool:
    """Whether to decide the strategy again: runs have finished since, and an operator's choice is not in force."""
    return finished >= strategy.pinned_until and (strategy.decided_at != finished or strategy.version <= 1)


def next_strategy(recent: Sequence[End], finished: int, near_misses: int, policy: Adapt) -> Strategy:
    """The strategy after `finished` finished experiments, by the policy's rule."""
    found = RULES[policy.rule](recent, finished, near_misses)
    return found.model_copy(update={"decided_at": finished})


def counts_as_crash(end: End) -> bool:
    """Crashes and timeouts count; faults of the infrastructure do not."""
    return end.status in ("crash", "timeout") and end.error_kind != "infra"


def next_direction(recent: Sequence[End], finished: int, near_misses: int) -> Strategy:
    """The published rule's mode after `finished` finished experiments; `recent`: the newest, in finish order."""
    if finished < MIN_FINISHED or not recent:
        return _too_few(finished)
    window = [e for e in recent[-WINDOW:] if not e.baseline] or recent[-1:]
    crash_rate = sum(map(counts_as_crash, window)) / len(window)
    keep_rate = sum(e.status == "keep" and not e.baseline for e in window) / len(window)
    if crash_rate > CRASH_RATE:
        return _strategy("exploit", 0.3, f"{crash_rate:.0%} of the last {len(window)} crashed: stay close")
    if keep_rate == 0 and finished > PLATEAU_AFTER:
        if near_misses >= 2:
            return _strategy(
                "combine", 0.5, f"no keep in the last {len(window)}, {near_misses} near misses to combine"
            )
        return _strategy("ablation", 0.3, f"no keep in the last {len(window)}, nothing to combine: simplify")
    if keep_rate > KEEP_RATE:
        return _strategy("exploit", 0.5, f"{keep_rate:.0%} of the last {len(window)} were kept: go on here")
    return _strategy("explore", 0.8, f"{keep_rate:.0%} of the last {len(window)} were kept: look elsewhere")


def next_by_yields(recent: Sequence[End], finished: int, near_misses: int) -> Strategy:
    """The mode that promises the most keeps, by how often each mode was kept lately; arguments as above."""
    if finished < MIN_FINISHED or not recent:
        return _too_few(finished)
    mode, found = best_mode(recent, near_misses)
    return _strategy(
        mode,
        TEMPERATURES[mode],
        f"{mode} promises most: {found.expected:.0%} of its tries are expected to be kept, {found.bound:.0%} if all"
        f" goes well ({found.tries:.1f} tries, old ones count for less)",
    )


Transitions = Callable[[Sequence[End], int, int], Strategy]
"""A rule that says the strategy after the newest ends, oldest first; how many finished, and near misses."""
RULES: Final[dict[str, Transitions]] = {"published": next_direction, "yields": next_by_yields}


def _too_few(finished: int) -> Strategy:
    return _strategy("explore", 1.0, f"too few finished experiments ({finished} of {MIN_FINISHED})")


def _strategy(mode: Mode, temperature: float, reason: str) -> Strategy:
    ratio = 0.8 if mode == "explore" else 0.3
    return Strategy(mode=mode, explore_ratio=ratio, temperature=temperature, reason=reason)


class StrategyView(BaseModel):
    """The mode of a search with its parameters and the reason for it."""

    mode: str
    explore_ratio: float
    temperature: float
    reason: str
    updated_at: str
    version: int
    pinned_until: int | None
    """Finished experiments up to which an operator's choice stands; null where none does."""


def strategy_view(found: Strategy) -> StrategyView:
    return view_of(
        StrategyView, found, updated_at=stamp(found.updated_at), pinned_until=found.pinned_until or None
    )
