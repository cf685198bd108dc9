"""What the functions of programs read and write."""

from __future__ import annotations

from dataclasses import dataclass

from state.presence import Presence
from state.programs import Programs
from state.train_queue import PiQueue


@dataclass(frozen=True)
class Stores:
    """The stores of this group."""

    programs: Programs
    presence: Presence
    queue: PiQueue
