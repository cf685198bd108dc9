"""Ranks: a run's value among the values that its peers had at the same bucket."""

from __future__ import annotations

from dataclasses import dataclass

from state.facts import NO_TREND, Trend
from state.records import Direction


@dataclass(frozen=True)
class PeerRank:
    """A run among its peers: other runs of the same tag and GPU class at the same bucket.

    These are all the facts that a stopping rule may use.
    """

    better: int
    tied: int
    worse: int
    stopped: int = 0
    """Runs of the same tag and GPU class that were stopped before this bucket."""
    trend: Trend = NO_TREND
    """Ranks here and at the end, of the peers that ended."""
    was_spared: bool = False
    """It had a chance of being stopped at an earlier bucket, and was not."""

    @property
    def peers(self) -> int:
        return self.better + self.tied + self.worse

    @property
    def rank(self) -> float:
        """Percentile: 0 is the worst, 100 the best. A tie counts as half a worse peer.

        If only worse peers counted, every run of a saturated metric would have rank 0.
        """
        return 100 * (self.worse + self.tied / 2) / self.peers if self.peers else 50.0

    @property
    def place(self) -> float:
        """Share of the runs, earlier stopped ones included, that are worse; between 0 and 1."""
        return place_among(self.better, self.tied, self.worse + self.stopped)


def standing(direction: Direction, *, lower: int, equal: int, peers: int) -> PeerRank:
    """Rank of a run, from the number of peers with a lower value and with an equal value."""
    higher = peers - lower - equal
    better, worse = (lower, higher) if direction == "minimize" else (higher, lower)
    return PeerRank(better, equal, worse)


def place_among(better: int, tied: int, worse: int) -> float:
    """Share of the others that are worse, a tie counting for half; above 0 and below 1."""
    return (worse + tied / 2 + 0.5) / (better + tied + worse + 1)
