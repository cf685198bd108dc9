"""A tag's search mode, decided from its last finished experiments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from functions.rules.search.yields import best_mode
from state.policy import WINDOW, Adapt
from state.records import End, Mode, Strategy

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


@dataclass(frozen=True)
class Direction:
    """A mode of the search with its parameters."""

    mode: Mode
    temperature: float
    explore_ratio: float
    reason: str


def is_due(strategy: Strategy, finished: int) -> bool:
    """Whether to decide the strategy again: runs have finished since, and an operator's choice is not in force."""
    return finished >= strategy.pinned_until and (strategy.decided_at != finished or strategy.version <= 1)


def next_strategy(recent: Sequence[End], finished: int, near_misses: int, policy: Adapt) -> Strategy:
    """The strategy after `finished` finished experiments, by the policy's rule."""
    found = RULES[policy.rule](recent, finished, near_misses)
    return Strategy(
        mode=found.mode,
        explore_ratio=found.explore_ratio,
        temperature=found.temperature,
        reason=found.reason,
        decided_at=finished,
    )


def counts_as_crash(end: End) -> bool:
    """Crashes and timeouts count; faults of the infrastructure do not."""
    return end.status in ("crash", "timeout") and end.error_kind != "infra"


def next_direction(recent: Sequence[End], finished: int, near_misses: int) -> Direction:
    """The published rule's mode after `finished` finished experiments; `recent`: the newest, in finish order."""
    if finished < MIN_FINISHED or not recent:
        return _too_few(finished)
    window = [e for e in recent[-WINDOW:] if not e.baseline] or recent[-1:]
    crash_rate = sum(map(counts_as_crash, window)) / len(window)
    keep_rate = sum(e.status == "keep" and not e.baseline for e in window) / len(window)
    if crash_rate > CRASH_RATE:
        return _direction("exploit", 0.3, f"{crash_rate:.0%} of the last {len(window)} crashed: stay close")
    if keep_rate == 0 and finished > PLATEAU_AFTER:
        if near_misses >= 2:
            return _direction(
                "combine", 0.5, f"no keep in the last {len(window)}, {near_misses} near misses to combine"
            )
        return _direction("ablation", 0.3, f"no keep in the last {len(window)}, nothing to combine: simplify")
    if keep_rate > KEEP_RATE:
        return _direction("exploit", 0.5, f"{keep_rate:.0%} of the last {len(window)} were kept: go on here")
    return _direction("explore", 0.8, f"{keep_rate:.0%} of the last {len(window)} were kept: look elsewhere")


def next_by_yields(recent: Sequence[End], finished: int, near_misses: int) -> Direction:
    """The mode that promises the most keeps, by how often each mode was kept lately; arguments as above."""
    if finished < MIN_FINISHED or not recent:
        return _too_few(finished)
    mode, found = best_mode(recent, near_misses)
    return _direction(
        mode,
        TEMPERATURES[mode],
        f"{mode} promises most: {found.expected:.0%} of its tries are expected to be kept, {found.bound:.0%} if all"
        f" goes well ({found.tries:.1f} tries, old ones count for less)",
    )


Transitions = Callable[[Sequence[End], int, int], Direction]
"""A rule that says the mode after the newest ends, oldest first; how many finished, and near misses."""
RULES: Final[dict[str, Transitions]] = {"published": next_direction, "yields": next_by_yields}
"""By their names in the policy, `adapt.rule`."""


def _too_few(finished: int) -> Direction:
    return _direction("explore", 1.0, f"too few finished experiments ({finished} of {MIN_FINISHED})")


def _direction(mode: Mode, temperature: float, reason: str) -> Direction:
    return Direction(mode, temperature, 0.8 if mode == "explore" else 0.3, reason)
