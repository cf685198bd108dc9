"""What goes wrong with simulated workers: drawn from rates, so that a seed repeats it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True)
class Faults:
    """Shares of runs, of workers and of requests with which something goes wrong."""

    crashes: float = 0.03
    """Of the runs."""
    stragglers: float = 0.05
    """Of the runs: their results come late."""
    deaths: float = 0.10
    """Of the workers: each dies in the middle of a run, and says nothing more."""
    duplicates: float = 0.05
    """Of the requests: sent twice at the same time."""
    reordered: float = 0.05
    """Of the ticks: sent after the next one."""
    repeats: float = 0.05
    """Of the results: sent once more after they were acknowledged, and a tick after that."""
    losses: float = 0.0
    """Of the answers: thrown away, so that the request is repeated."""


@dataclass(frozen=True)
class Fate:
    """What goes wrong with one run."""

    crashes_at: float | None = None
    """Share of its budget."""
    is_late: bool = False
    late_by: float = 0.0
    """When its result comes, as a share of the time after which a silent run is lost: 0.4 to 1.2."""


@dataclass(frozen=True)
class Death:
    """Where a worker dies."""

    nth: int
    """Of its runs, from 0."""
    progress: float
    """After the last tick up to this share of it."""


def fate(faults: Faults, rng: Random) -> Fate:
    """What goes wrong with the next run; a crash is not late, too."""
    crash, straggle = rng.random() < faults.crashes, rng.random() < faults.stragglers
    at, by = rng.uniform(0.05, 0.95), rng.uniform(0.4, 1.2)
    if crash:
        return Fate(crashes_at=at)
    return Fate(is_late=True, late_by=by) if straggle else Fate()


def deaths(faults: Faults, workers: int, rounds: int, rng: Random) -> Mapping[int, Death]:
    """Which workers die, by their number from 0: exactly the share that was asked for, rounded up."""
    dying = rng.sample(range(workers), min(workers, math.ceil(faults.deaths * workers)))
    return {n: Death(rng.randrange(rounds), rng.uniform(0.05, 0.95)) for n in sorted(dying)}
