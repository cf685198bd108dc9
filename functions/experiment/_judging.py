"""What judges retests: the stores as one bundle."""

from __future__ import annotations

from dataclasses import dataclass

from state.experiments import Experiments
from state.settings import Settings
from state.tags import Tags
from state.traces import Traces


@dataclass(frozen=True)
class Judging:
    """The stores that retests are judged with."""

    experiments: Experiments
    tags: Tags
    traces: Traces
    settings: Settings
