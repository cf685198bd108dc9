"""What the functions of a GPU read and write."""

from __future__ import annotations

from dataclasses import dataclass

from state.experiments import Experiments
from state.pool import Pool


@dataclass(frozen=True)
class Stores:
    """The stores of this group."""

    experiments: Experiments
    pool: Pool
