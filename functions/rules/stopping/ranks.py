"""Ranks: how a run's value stands among those that its peers had at the same point."""

from __future__ import annotations

from dataclasses import dataclass

from state.records import Direction


@dataclass(frozen=True)
class Standing:
    """Other runs of the same tag, GPU class and bucket, by how their values compare with this run's.

    What a rule of early stopping may use stands here. A rule that needs more facts adds them as fields.
    """

    better: int
    tied: int
    worse: int

    @property
    def peers(self) -> int:
        return self.better + self.tied + self.worse

    @property
    def rank(self) -> float:
        """Percentile: 0 is the worst, 100 the best. A tie counts as half a worse peer.

        Counting only worse peers would give every run of a saturated metric the rank 0.
        """
        return 100 * (self.worse + self.tied / 2) / self.peers if self.peers else 50.0


def standing(direction: Direction, *, lower: int, equal: int, peers: int) -> Standing:
    """Where a run stands of whose `peers` so many have a lower or an equal value."""
    higher = peers - lower - equal
    better, worse = (lower, higher) if direction == "minimize" else (higher, lower)
    return Standing(better, equal, worse)
