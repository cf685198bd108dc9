"""Stores of dimension::draft."""

from __future__ import annotations

from dataclasses import dataclass

from functions.authoring import PiLane
from state.dimension_proposals import DimensionProposals
from state.programs import Programs


@dataclass(frozen=True)
class Drafting:
    """The stores of a draft."""

    proposals: DimensionProposals
    programs: Programs
    lane: PiLane
