"""What the functions read and write that have dimensions drafted."""

from __future__ import annotations

from dataclasses import dataclass

from state.dimension_proposals import DimensionProposals
from state.presence import Presence
from state.programs import Programs
from state.train_queue import PiQueue


@dataclass(frozen=True)
class Drafting:
    """The stores of a draft."""

    proposals: DimensionProposals
    programs: Programs
    presence: Presence
    queue: PiQueue
