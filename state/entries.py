"""How an experiment enters the lab: what that is decided on, and what is decided; values only, no IO."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rounds:
    """The wait queue's rounds, as they were read."""

    own: int | None
    """Of the agent's newest experiment; None: it has none in a round that is not over."""
    served: int
    """The newest round that an experiment got a GPU in."""


@dataclass(frozen=True)
class Turn:
    """The round that an agent's next experiment waits in, and the rounds that this was decided on."""

    round: int
    rounds: Rounds
