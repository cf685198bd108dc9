"""What the functions read and write that have hypotheses drafted."""

from __future__ import annotations

from dataclasses import dataclass

from state.hypotheses import Hypotheses
from state.presence import Presence
from state.programs import Programs
from state.told_graphs import ToldGraphs
from state.train_queue import PiQueue


@dataclass(frozen=True)
class Drafting:
    """The stores of a draft."""

    hypotheses: Hypotheses
    programs: Programs
    presence: Presence
    queue: PiQueue


@dataclass(frozen=True)
class Telling:
    """The stores of a graph in prose."""

    hypotheses: Hypotheses
    graphs: ToldGraphs
    presence: Presence
    queue: PiQueue
