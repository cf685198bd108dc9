"""The terms of a tag's evidence, and what a rule of evidence is told of a finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from functions.rules.beliefs.reprieved import Reprieved
from functions.rules.swarm.shapes import SwarmStrategy
from state.records import Dimension, Value

EvidencePolicy = Literal["matched", "baseline"]
RunEnd = Literal["value", "crash", "stopped", "failed"]
"""With a value; by the config's own fault, as a timeout does; early, for its rank; by the fault of the worker or the
lab, as lost runs do."""


@dataclass(frozen=True)
class Terms:
    """What counts as evidence in a tag."""

    policy: EvidencePolicy = "matched"
    sigma: float | None = None
    """Standard deviation of two runs of one config on one worker; None: not known yet."""
    usual_distance: float | None = None
    """What two runs of one config on one worker lie apart by, half of the time; None: not known yet."""
    repeats: int = 0
    """Repeats by which sigma is known: degrees of freedom."""
    dimensions: Sequence[Dimension] = ()
    """What the tag's swarm varies."""
    dead_zone: float = 0.0
    """In sigmas: smaller differences are no outcome. A tie never is."""
    equivalence_margin: float = 1.0
    """In sigmas: a dimension whose effect lies inside, anywhere in its range, is irrelevant."""
    workers: int = 1
    """Active workers of the tag."""

    @property
    def smallest(self) -> float:
        """The largest difference that is no outcome."""
        return self.dead_zone * (self.sigma or 0.0)


@dataclass(frozen=True)
class FinishedRun:
    """A run of a swarm's worker that has ended."""

    experiment_id: str
    worker_id: str
    config: Mapping[str, Value]
    """With every dimension."""
    strategy: SwarmStrategy
    """Of the population that it was handed out to."""
    hypothesis_id: str | None
    """Of that population."""
    ended: RunEnd
    judged: float | None = None
    """Its value less its worker's baseline, by which it is judged: lower is better, the direction is applied."""
    key: str = ""
    """Runs with equal keys are compared under the same conditions."""
    reprieved: Reprieved | None = None
    """Of a run that was stopped: those of its bucket and rank band that went on; None: none is known."""
