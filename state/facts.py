"""What was read for a decision, as one frozen value that rules can use; values only, no IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from state.policy import Policy
from state.records import Best, Experiment, Gpu, Tag, Trace


@dataclass(frozen=True)
class Spread:
    """What all repeats of one tag and GPU class say together."""

    squares: float
    """Sum of the squared deviations, each from the mean of its own code."""
    df: int
    """Degrees of freedom: runs beyond the first of each code."""
    runs: tuple[str, ...]
    """What is kept of each code that was asked for, as the end of the newest run left it; empty: nothing."""


@dataclass(frozen=True)
class RunFacts:
    """A run as it stands, before it is known what it is compared with."""

    experiment: Experiment
    first: Experiment | None
    """The experiment that it repeats; None where it is no retest."""
    answer: Mapping[str, Any] | None
    """What its ending report was answered: {op, digest, answer}."""
    tag: Tag
    policy: Policy
    policy_version: int
    crashes_in_a_row: int
    best: Best | None
    """Under the tag's main comparability key."""
    epoch: int
    """Of the tag's traces."""


@dataclass(frozen=True)
class Comparison:
    """What a run is compared with."""

    gpu: Gpu | None
    """The GPU that it ran on."""
    best: Best | None
    """Under the run's comparability key."""
    noise_key: str
    noise: Spread
    """Of its tag and GPU class; holds the runs of its own code, then those of the best's code."""
    trace: Trace | None = None
    sources: tuple[Trace, ...] = ()
    """Traces that it merges into its own."""
    base: Experiment | None = None
    """What its branch stands on: the base that it was selected with, or what retests have left of it."""
    begins_on: Experiment | None = None
    """The nearest keep at or above the base that it was selected with: on this a new trace begins."""


@dataclass(frozen=True)
class RaceFacts:
    """A best with the records of its chain, its rivals and their retests."""

    tag: Tag
    policy: Policy
    best: Best
    runs: Mapping[str, Experiment]
    """Of its chain and its rivals, by id."""
    retests: Mapping[str, Sequence[Experiment]]
    """Of each of them, in the order in which they were begun."""
    noise: Spread
    """Of the best's class of GPU, with the runs of the chain and of the rivals."""
    gpus: tuple[Gpu, ...]
    now: float
    """Redis' clock."""
