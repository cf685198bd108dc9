"""A near miss is a discard within a margin of the best."""

from __future__ import annotations

from functions.rules.keeps.noise import Noise, noise_of, standard_error
from functions.rules.keeps.verdict import near_band
from state.facts import Spread
from state.records import Direction

LEAST = 0.002
"""Margin while the noise is not known, and the least one by default."""


def near_margin(of_policy: float | None, noise: Noise | None) -> float:
    """The policy's margin; by default at least one sigma of the difference between two runs."""
    if of_policy is not None:
        return of_policy
    return max(LEAST, standard_error(noise.sigma, 1, 1)) if noise else LEAST


def near_scores(
    best: float, direction: Direction, of_policy: float | None, spread: Spread
) -> tuple[float, float]:
    """Scores (lower = better) of near misses, for stores that count and list them."""
    margin = near_margin(of_policy, noise_of(spread.squares, spread.df))
    return near_band(best, direction, margin)
