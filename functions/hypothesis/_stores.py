"""What the functions read and write that have hypotheses drafted."""

from __future__ import annotations

from dataclasses import dataclass

from functions.authoring import PiLane
from state.graph_summaries import GraphSummaries
from state.hypotheses import Hypotheses
from state.programs import Programs


@dataclass(frozen=True)
class Drafting:
    """The stores of a draft."""

    hypotheses: Hypotheses
    programs: Programs
    lane: PiLane


@dataclass(frozen=True)
class Telling:
    """The stores of a graph in prose."""

    hypotheses: Hypotheses
    graphs: GraphSummaries
    lane: PiLane
