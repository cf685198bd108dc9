"""What the functions of pipelines read and write."""

from __future__ import annotations

from dataclasses import dataclass

from functions.authoring import PiLane
from state.pipelines import Pipelines
from state.programs import Programs
from state.swarms import Swarms


@dataclass(frozen=True)
class Reading:
    """The stores that drafts and programs are read from."""

    pipelines: Pipelines
    programs: Programs


@dataclass(frozen=True)
class Preloading(Reading):
    """The same for workers: they get the part of their population, too."""

    swarms: Swarms


@dataclass(frozen=True)
class Drafting:
    """The stores of a draft that is written."""

    pipelines: Pipelines
    programs: Programs
    lane: PiLane
