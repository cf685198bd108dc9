"""A certificate: pairs of runs of a candidate and its reference, and what a sequential test made of them."""

from __future__ import annotations

from typing import Literal

from state.records.base import Record
from state.records.tags import Direction

Side = Literal["candidate", "reference"]
CertificateState = Literal["running", "certified", "refused", "inconclusive"]


class CertificatePair(Record):
    """A run of the candidate and one of the reference."""

    first: Side
    """Drawn: the one that is queued first."""
    candidate: str
    """Ids of the two runs, chosen before they begin."""
    reference: str
    measured: tuple[float, float] | None = None
    """Of candidate and reference, as measured; None: not both are known."""
    broken: str | None = None
    """Why the pair does not count and was run again."""

    @property
    def is_open(self) -> bool:
        return self.measured is None and self.broken is None

    @property
    def in_order(self) -> tuple[str, str]:
        """The two runs, the first one first."""
        if self.first == "candidate":
            return self.candidate, self.reference
        return self.reference, self.candidate


class Certificate(Record):
    """A candidate's newest certificate."""

    experiment_id: str
    against: str
    """The reference experiment."""
    direction: Direction
    min_gain: float
    """The margin: the gain has to exceed it."""
    alpha: float
    """Largest probability of a certificate for a gain at the margin."""
    most_pairs: int
    gpu_class: str | None
    state: CertificateState = "running"
    reason: str = ""
    """Why it was not certified."""
    pairs: tuple[CertificatePair, ...] = ()
    e_value: float = 1.0
    """After the newest pair; `certified` at 1 / alpha."""
    nth: int = 1
    """Number of certificates of this candidate so far, under other conditions, with this one."""
    begun_at: float = 0.0
    decided_at: float | None = None

    @property
    def counted(self) -> list[tuple[float, float]]:
        """Values of candidate and reference in each pair that counts."""
        return [pair.measured for pair in self.pairs if pair.measured is not None]
