"""What the rules of evidence work on: a tag's settings, finished runs, survivors of early stopping, influence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from functions.swarm.rules.shapes import SwarmStrategy
from state.records import Dimension, HypothesisClaim, Value

# -- What the rules of evidence work on: the settings of a tag, a finished run, and the survivors of early stopping.

EvidencePolicy = Literal["matched", "baseline"]
RunEnd = Literal["value", "crash", "stopped", "failed"]
"""value: with a result. crash: by the config's own fault, timeouts included. stopped: early, for its rank. failed: by
the fault of the worker or the lab."""

BANDS = 6
"""Bands of ranks. The rule `stochastic` stops runs in two of them."""
PRIOR = 0.25
"""Win share of a band without runs."""
PRIOR_WEIGHT = 0.5
"""Weight of the prior: about one run, by the weights that runs have under that rule."""


@dataclass(frozen=True)
class Survivors:
    """Runs of a tag that might have been stopped in one band of ranks at one bucket, and went on.

    A draw stops some runs of a rank and lets the others go on. So the survivors estimate how the stopped runs would
    have ended. Leaving stopped runs out would make each claim look better than it is, because losers are missing.
    """

    wins: float = 0.0
    """Sum of their weighted outcomes."""
    weight: float = 0.0
    """Sum of their weights."""

    @property
    def share(self) -> float:
        """Win share of the runs that were stopped there, 0 to 1."""
        return (self.wins + PRIOR * PRIOR_WEIGHT) / (self.weight + PRIOR_WEIGHT)

    def with_(self, outcome: float, chance: float) -> Survivors:
        """With one more survivor, which had this probability of being stopped.

        It stands for chance / (1 - chance) stopped runs, since lower ranks of a band are stopped more often (Horvitz
        and Thompson, J. Am. Stat. Assoc. 47, 1952). `outcome`, 0 to 1, is a share if the run was stopped at a later
        bucket.
        """
        weight = chance / (1 - chance)
        return Survivors(self.wins + weight * outcome, self.weight + weight)


def band_of(rank: float) -> int:
    """The band, 0 to 5, of a rank from 0 (worst) to 100."""
    return min(int(rank * BANDS / 100), BANDS - 1)


@dataclass(frozen=True)
class BeliefTerms:
    """What counts as evidence in a tag."""

    policy: EvidencePolicy = "matched"
    sigma: float | None = None
    """Standard deviation of two runs of one config on one worker; None: not known yet."""
    usual_distance: float | None = None
    """Median distance of two runs of one config on one worker; None: not known yet."""
    repeats: int = 0
    """Degrees of freedom of sigma."""
    dimensions: Sequence[Dimension] = ()
    workers: int = 1


@dataclass(frozen=True)
class FinishedRun:
    """A run of a swarm's worker that has ended."""

    experiment_id: str
    worker_id: str
    config: Mapping[str, Value]
    """The value of every dimension."""
    strategy: SwarmStrategy
    hypothesis_id: str | None
    ended: RunEnd
    judged: float | None = None
    """Its value less its worker's baseline. Lower is better, whatever the metric's direction."""
    key: str = ""
    """Comparability key: runs with equal keys ran under the same conditions."""
    survivors: Survivors = Survivors()
    """Of a stopped run: the survivors of its bucket and rank band."""


# -- Claims of influence: some dimensions matter, whichever of their values are better.
#
# Such a claim names dimensions and has no constraint. With a good reference config, random values of an important
# dimension lose as often as they win. So a pair wins if its two runs differ, in either direction, by more than the
# median distance of two runs of one config. Without an influence that is an even chance.
#
# The verdict against such a claim is irrelevance, not refutation: a win share below one half only says that the
# noise was overestimated. Stopped and crashed runs have no distance and are no evidence.


def is_of_influence(claim: HypothesisClaim) -> bool:
    """Whether it claims that dimensions matter, without a direction."""
    return bool(claim.dimensions) and not claim.config_constraint and claim.test_spec is None


def outcome_of_distance(contrast: float, terms: BeliefTerms) -> float | None:
    """1 where a pair differs by more than the median distance of noise; else 0. None: the noise is not known."""
    if terms.usual_distance is None:
        return None
    return float(abs(contrast) > terms.usual_distance)
