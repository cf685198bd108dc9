"""The stores that the audit of a lab reads."""

from __future__ import annotations

from dataclasses import dataclass

from state.dimensions import Dimensions
from state.experiments import Experiments
from state.policies import Policies
from state.pool import Pool
from state.snapshots import Snapshots
from state.tags import Tags


@dataclass(frozen=True)
class Stores:
    tags: Tags
    policies: Policies
    experiments: Experiments
    pool: Pool
    snapshots: Snapshots
    dimensions: Dimensions
