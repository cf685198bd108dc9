"""Dimensions and proposed dimensions in answers."""

from __future__ import annotations

from functions.rules.swarm.canaries.proposing import line_of
from functions.rules.swarm.canaries.trials import eligibility_of
from state.records import Dimension, ProposedDimension, stamp
from state.records.dimensions import DimensionFields
from state.records.proposed_dimensions import ProposedFields
from state.trial_facts import TrialFacts


class DimensionView(DimensionFields):
    """A constant of train.py that a swarm may vary."""

    frozen_at: str | None = None


def dimension_view(dimension: Dimension) -> DimensionView:
    at = dimension.frozen_at
    return DimensionView.model_validate(vars(dimension) | {"frozen_at": None if at is None else stamp(at)})


class ProposedDimensionView(ProposedFields):
    """A dimension that was proposed to a tag."""

    train_py_line: str
    """The line that a train.py needs if it lacks the constant."""
    proposed_at: str
    signal_count: int
    """Number of stall cycles in which it was proposed; two make it eligible."""
    eligible: bool
    """It is adopted once the search stalls and no trial runs."""
    adopted: bool
    """It is on trial, or promoted."""
    reason: str
    """Why it is not adopted yet, or the result of its trial."""


def proposed_view(proposal: ProposedDimension, facts: TrialFacts) -> ProposedDimensionView:
    found = eligibility_of(proposal, facts)
    own = {
        "train_py_line": line_of(proposal),
        "proposed_at": stamp(proposal.proposed_at),
        "signal_count": len(proposal.cycles),
        "eligible": found.is_eligible,
        "adopted": proposal.state in ("on_trial", "promoted"),
        "reason": found.reason,
    }
    return ProposedDimensionView.model_validate(vars(proposal) | own)
