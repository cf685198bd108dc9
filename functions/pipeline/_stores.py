"""What the functions of pipelines read and write."""

from __future__ import annotations

from dataclasses import dataclass

from state.pipelines import Pipelines
from state.presence import Presence
from state.programs import Programs
from state.swarms import Swarms
from state.train_queue import PiQueue


@dataclass(frozen=True)
class Reading:
    """The stores of what is served."""

    pipelines: Pipelines
    programs: Programs


@dataclass(frozen=True)
class Preloading(Reading):
    """The stores of what is served to workers."""

    swarms: Swarms


@dataclass(frozen=True)
class Drafting:
    """The stores of a draft that is written."""

    pipelines: Pipelines
    programs: Programs
    presence: Presence
    queue: PiQueue
