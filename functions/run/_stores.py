"""What the functions of a swarm's runs read and write."""

from __future__ import annotations

from dataclasses import dataclass

from state.experiments import Experiments
from state.swarms import Swarms


@dataclass(frozen=True)
class Stores:
    """The stores of this group."""

    experiments: Experiments
    swarms: Swarms
