"""What a run that was stopped early counts for: the win share of runs that stood as it did and were let go on.

A draw stops some of the runs of a rank and lets the others go on, so these tell what those would have come to.
Leaving stopped runs out makes each claim look better than it is: the losers are missing.
"""

from __future__ import annotations

from dataclasses import dataclass

BAND = 5.0
"""Width of a band of ranks, in percent."""
PRIOR = 0.25
"""Win share of a band without runs."""
PRIOR_RUNS = 4.0
"""Runs that the prior stands for."""


@dataclass(frozen=True)
class Reprieved:
    """Runs of a tag with a rank in one band at one bucket that went on there."""

    wins: float = 0.0
    """Sum of their outcomes, each from 0 to 1: one that was stopped at a later bucket counts for its own share."""
    runs: int = 0

    @property
    def share(self) -> float:
        """Their win share, 0 to 1, with the prior as Beta(1, 3)."""
        return (self.wins + PRIOR * PRIOR_RUNS) / (self.runs + PRIOR_RUNS)

    def with_(self, outcome: float) -> Reprieved:
        """And one more run."""
        return Reprieved(self.wins + outcome, self.runs + 1)


def band_of(rank: float) -> int:
    """The band of a rank of 0 (worst) to 100, from 0 to 19."""
    return min(int(rank // BAND), int(100 / BAND) - 1)
