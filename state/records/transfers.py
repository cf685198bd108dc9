"""A transfer: whether a keep's gain holds when it and its reference train for longer."""

from __future__ import annotations

from typing import Literal

from state.records.base import Record

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
