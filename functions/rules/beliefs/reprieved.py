"""What a run that was stopped early counts for: the win share of runs that stood as it did and were let go on.

A draw stops some of the runs of a rank and lets the others go on, so these tell what those would have come to.
Leaving stopped runs out makes each claim look better than it is: the losers are missing.
"""

from __future__ import annotations

from dataclasses import dataclass

BANDS = 6
"""Bands of ranks; two of them lie where the rule `stochastic` stops runs."""
PRIOR = 0.25
"""Win share of a band without runs."""
PRIOR_WEIGHT = 0.5
"""What the prior counts for: about one run, by the weights that they have under that rule."""


@dataclass(frozen=True)
class Reprieved:
    """Runs of a tag with a rank in one band at one bucket that might have been stopped there, and were not."""

    wins: float = 0.0
    """Sum of their weighted outcomes."""
    weight: float = 0.0
    """Sum of their weights."""

    @property
    def share(self) -> float:
        """The win share of those that were stopped there, 0 to 1."""
        return (self.wins + PRIOR * PRIOR_WEIGHT) / (self.weight + PRIOR_WEIGHT)

    def with_(self, outcome: float, chance: float) -> Reprieved:
        """And one more run, which had to stop with this probability.

        It stands for chance / (1 - chance) runs that were stopped: in the same band, the lower a rank, the more of
        them are (Horvitz and Thompson, J. Am. Stat. Assoc. 47, 1952). `outcome` is from 0 to 1: that of a run which
        was stopped at a later bucket is what it counted for.
        """
        weight = chance / (1 - chance)
        return Reprieved(self.wins + weight * outcome, self.weight + weight)


def band_of(rank: float) -> int:
    """The band of a rank of 0 (worst) to 100, from 0 to 5."""
    return min(int(rank * BANDS / 100), BANDS - 1)
