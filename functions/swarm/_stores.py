"""What the functions of a swarm read and write."""

from __future__ import annotations

from dataclasses import dataclass

from state.dimensions import Dimensions
from state.experiments import Experiments
from state.programs import Programs
from state.swarms import Swarms
from state.tokens import Tokens


@dataclass(frozen=True)
class Stores:
    """The stores of this group."""

    experiments: Experiments
    swarms: Swarms
    programs: Programs


@dataclass(frozen=True)
class Joining:
    """The stores of a registration."""

    swarms: Swarms
    dimensions: Dimensions
    tokens: Tokens
    programs: Programs
