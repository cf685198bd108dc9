"""Records of the room trust: certificates, and transfers and distillations, whose runs are in a tag of their own."""

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


TransferState = Literal["planned", "running", "transfers", "bound to its budget", "inconclusive"]


class Transfer(Record):
    """A keep and its reference, run in pairs at a longer budget."""

    experiment_id: str
    against: str
    """The reference experiment."""
    tag: str
    into: str
    """The tag of its runs."""
    own_budget_s: float
    """Seconds that the keep was judged by."""
    budget_s: float
    """Seconds of each run of the transfer."""
    most_runs: int
    state: TransferState = "planned"
    reason: str = ""
    """Why it does not say `transfers`."""
    candidate: str | None = None
    """The experiment with the keep's code in `into`; null: not submitted yet."""
    reference: str | None = None
    gain: float
    """Of the keep over its reference at their own budget; above zero is better."""
    longer_gain: float | None = None
    """Mean of the pairs at the longer budget; null: no pair is over."""
    pairs: int = 0
    """Pairs that count so far."""
    e_value: float = 1.0
    begun_at: float = 0.0
    decided_at: float | None = None


ChangeState = Literal["untried", "trying", "kept", "needed", "undecided", "dropped"]


class ChainChange(Record):
    """The change that one keep made to the code of the keep before it."""

    experiment_id: str
    above: str | None
    """The keep that it changed; None: the tag's base commit."""
    description: str
    lines: int
    """Lines that it adds and removes."""
    state: ChangeState = "untried"
    """`needed`: later changes are built on it. `undecided`: it stays, because there were no more runs."""
    reason: str = ""
    without: str | None = None
    """The experiment that leaves it out."""
    loss: float | None = None
    """How much worse the code was without it, above zero is worse; None: not measured."""
    runs: int = 0

    @property
    def stays(self) -> bool:
        return self.state != "dropped"


class Distillation(Record):
    """The smallest patch with the score of a tag's best, and how it is found."""

    tag: str
    into: str
    """The tag of its runs."""
    best: str
    """The best whose chain it is."""
    direction: Direction
    most_runs: int
    run_s: float
    """Seconds of a run, as the best took."""
    state: Literal["planned", "running", "done", "stopped"] = "planned"
    reason: str = ""
    changes: tuple[ChainChange, ...]
    """From the first keep to the best."""
    reference: str | None = None
    """The experiment with the code of the whole chain."""
    smallest: str | None = None
    """The experiment with the smallest code so far."""
    reference_runs: int = 0
    pooled: tuple[float, ...] = ()
    """Values of the runs without the changes that were dropped: their code has the score of the whole chain."""
    loss: float | None = None
    """How much worse the smallest code is than the whole chain, by the means of their runs; above zero is worse."""
    noise: float | None = None
    """Standard deviation of a run."""
    parts: tuple[tuple[str, ...], ...] = ()
    """Keeps by independent change: each of these applies to the base commit alone."""
    begun_at: float = 0.0
    decided_at: float | None = None

    @property
    def runs(self) -> int:
        """Runs that were begun."""
        return self.reference_runs + sum(change.runs for change in self.changes)

    @property
    def trying(self) -> ChainChange | None:
        return next((change for change in self.changes if change.state == "trying"), None)
