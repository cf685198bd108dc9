"""The search's mode and category by how often each was kept lately: a bandit that forgets.

An upper bound of each yield decides, as in the Bayesian upper confidence bounds of Kaufmann, Cappé and Garivier
(2012), with evidence that is discounted as in Garivier and Moulines (2011). The bound is the posterior's mean plus
one standard deviation: no chance is drawn, so that all who ask of the same facts agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from functions.rules.search.kinds import NO_CATEGORY, OF_CATEGORY, kept_category, with_kinds
from state.records import End, Mode

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
        """With one more try."""
        return Yield(self.keeps + weight * kept, self.tries + weight)


NONE: Final = Yield()


def yields(outcomes: Iterable[tuple[Arm, bool]]) -> dict[Arm, Yield]:
    """The yield of each arm that was tried, from (arm, kept), oldest first."""
    found: dict[Arm, Yield] = {}
    for age, (arm, kept) in enumerate(reversed([*outcomes])):
        found[arm] = found.get(arm, NONE).later(math.exp(-age / MEMORY), kept=kept)
    return found


def mode_yields(ends: Iterable[End]) -> dict[Mode, Yield]:
    """The yield of each kind of try."""
    return yields((kind, end.status == "keep") for end, kind in with_kinds(ends))


def best_mode(ends: Sequence[End], near_misses: int) -> tuple[Mode, Yield]:
    """The mode with the highest bound, and its yield; `ends`: the newest, oldest first.

    Two near misses are needed to combine, and a keep to go on with.
    """
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
