"""The stores that the functions of traces use."""

from __future__ import annotations

from dataclasses import dataclass

from functions.plugins import Schedulers
from state.experiments import Experiments
from state.policies import Policies
from state.pool import Pool
from state.settings import Settings
from state.tags import Tags
from state.traces import Traces
from state.wakeups import Wakeups


@dataclass(frozen=True)
class Stores:
    tags: Tags
    policies: Policies
    experiments: Experiments
    traces: Traces
    pool: Pool
    schedulers: Schedulers
    wakeups: Wakeups
    settings: Settings
