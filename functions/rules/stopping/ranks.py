"""Ranks: how a run's value stands among those that its peers had at the same point."""

from __future__ import annotations

from dataclasses import dataclass

from state.facts import NO_TREND, Trend
from state.records import Direction


@dataclass(frozen=True)
class Standing:
    """Other runs of the same tag, GPU class and bucket, by how their values compare with this run's.

    What a rule of early stopping may use stands here. A rule that needs more facts adds them as fields.
    """

    better: int
    tied: int
    worse: int
    stopped: int = 0
    """Runs of the same tag and GPU class that were stopped before they came to this bucket."""
    trend: Trend = NO_TREND
    """How those that ended stood here, and how they ended."""
    was_spared: bool = False
    """It might have been stopped at an earlier bucket, and was let go on."""

    @property
    def peers(self) -> int:
        return self.better + self.tied + self.worse

    @property
    def rank(self) -> float:
        """Percentile: 0 is the worst, 100 the best. A tie counts as half a worse peer.

        Counting only worse peers would give every run of a saturated metric the rank 0.
        """
        return 100 * (self.worse + self.tied / 2) / self.peers if self.peers else 50.0

    @property
    def place(self) -> float:
        """Share of the runs that it is better than, those that were stopped before included: within 0 and 1."""
        return place_among(self.better, self.tied, self.worse + self.stopped)


def standing(direction: Direction, *, lower: int, equal: int, peers: int) -> Standing:
    """Where a run stands of whose `peers` so many have a lower or an equal value."""
    higher = peers - lower - equal
    better, worse = (lower, higher) if direction == "minimize" else (higher, lower)
    return Standing(better, equal, worse)


def place_among(better: int, tied: int, worse: int) -> float:
    """Share of the others that a value is better than, a tie counting for half: above 0 and below 1."""
    return (worse + tied / 2 + 0.5) / (better + tied + worse + 1)
