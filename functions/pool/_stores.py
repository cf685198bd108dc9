"""What the functions of the pool read and write."""

from __future__ import annotations

from dataclasses import dataclass

from state.experiments import Experiments
from state.pool import Pool
from state.tags import Tags
from state.train_queue import TrainQueue
from state.wakeups import Wakeups


@dataclass(frozen=True)
class Stores:
    """The stores of this group."""

    pool: Pool
    experiments: Experiments
    tags: Tags
    train_queue: TrainQueue
    wakeups: Wakeups
