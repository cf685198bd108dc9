"""Facts that were read for a decision, as one frozen value that rules can use. No IO."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from state.policy import Policy, TickSource
from state.records import (
    Best,
    Certificate,
    Direction,
    End,
    Experiment,
    Gpu,
    GpuState,
    Mention,
    OneRun,
    Pace,
    ReferenceTime,
    Selection,
    Sketch,
    Status,
    Strategy,
    Tag,
    Trace,
    Transfer,
)

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Noise:
    """The standard deviation of one run's value, in the metric's own unit."""

    sigma: float
    df: int
    """Degrees of freedom behind it, at least 1."""


class Spread(NamedTuple):
    """What all repeats of one tag and GPU class say together, or a change of it."""

    df: int = 0
    """Degrees of freedom: runs beyond the first of each code."""
    squares: float = 0.0
    """Sum of the squared deviations, each from the mean of its own code."""
    runs: tuple[str, ...] = ()
    """The stored entry of each code in question, as its newest run left it; empty: none."""

    def with_(self, more: Spread) -> Spread:
        return Spread(self.df + more.df, self.squares + more.squares)

    @property
    def is_known(self) -> bool:
        """Whether a run is weighed against earlier ones, which takes statistics."""
        return bool(self.df or any(self.runs))

    def changed(self, by: Spread) -> dict[str, float]:
        """Its df and squares after a change; empty where that changes nothing."""
        if not (by.df or by.squares):
            return {}
        df = max(0, self.df + by.df)
        return {"df": df, "squares": max(0.0, self.squares + by.squares) if df else 0}

    @property
    def noise(self) -> Noise | None:
        """None without a degree of freedom."""
        return Noise(math.sqrt(self.squares / self.df), self.df) if self.df else None


UNCHANGED = Spread()


class RunFacts(NamedTuple):
    """A run as it stands, before it is known what it is compared with."""

    now: float
    experiment: Experiment
    gpu_id: str | None
    """The GPU of the attempt that is reported on, else of the newest."""
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
    attempts: Mapping[str, str] | None = None
    """Its attempts, as they are stored; read for a worker's report."""


@dataclass(frozen=True)
class Refusals:
    """What the hidden split has against a keep."""

    best: str | None = None
    """Why it is not kept as the best; None: it may be."""
    base: str | None = None
    """Why it is not kept on its branch."""
    is_run_again: bool = False
    """Whether each keep of its tag needs a second run."""


NOT_REFUSED = Refusals()
BASELINE = "baseline"
"""Field of the numbers of a hidden split with the identity of the baseline's code."""


@dataclass(frozen=True)
class HiddenFacts:
    """Numbers of a hidden split as they are stored, by field; a field that is not there is None."""

    stored: Mapping[str, str | None] = field(default_factory=dict, repr=False)


class Comparison(NamedTuple):
    gpu: Gpu | None
    """The GPU that it ran on."""
    best: Best | None
    """Under the run's comparability key."""
    noise_key: str
    noise: Spread
    """Of its tag and GPU class; holds the runs of its own code, those of the best's code, and its worker's own of its
    code."""
    trace: Trace | None = None
    sources: tuple[Trace, ...] = ()
    """Traces that it merges into its own."""
    base: Experiment | None = None
    """The base of its branch: the one that it was selected with, unless retests took that back."""
    ends: Peers | None = None
    """Runs of the same class of GPU that ended, by what they ended with; None: it was ranked nowhere."""
    begins_on: Experiment | None = None
    """The nearest keep at or above the base that it was selected with: on this a new trace begins."""
    references: tuple[str, ...] = ()
    """Times of its `time_classes`, where a worker trains it, as they are stored; empty: there is none."""
    epoch: int = 1
    """Of the tag's traces."""
    hidden: Refusals = NOT_REFUSED
    guarded: tuple[tuple[Experiment, ...], ...] = ()
    """Where slices are guarded: runs with a value of its branch's base, of the best and of the baseline."""
    around: Mapping[str, Any] = NOTHING
    """What else its end changes, as it was read; see `EndingStore.finish`."""

    @property
    def reference_time(self) -> ReferenceTime | None:
        """The time that it is compared with: the baseline's, else that of the first run."""
        found = next(filter(None, self.references[:2]), None)
        return ReferenceTime.model_validate_json(found) if found else None

    @property
    def baseline_pace(self) -> Pace | None:
        """Pace of the fastest run of the baseline's code on its class of GPU."""
        found = self.references[2] if self.references else ""
        return Pace.model_validate_json(found) if found else None


@dataclass(frozen=True)
class RankFacts:
    """A run that has reached a bucket, and what its answer there depends on besides its peers."""

    now: float
    experiment: Experiment
    policy: Policy
    rank_class: str
    """Among whose runs it is ranked."""
    tick_source: TickSource = "report"
    """Where its tick comes from."""


@dataclass(frozen=True)
class Trend:
    """Sums over the runs of a tag and GPU class that were ranked at a bucket and ended with a value.

    `u` is a run's place at the bucket and `v` its place at the end, as `functions/runs/rules/stopping.py` has them.
    """

    runs: float = 0.0
    u: float = 0.0
    v: float = 0.0
    uu: float = 0.0
    vv: float = 0.0
    uv: float = 0.0


NO_TREND = Trend()


@dataclass(frozen=True)
class Peers:
    """The other runs of a tag, GPU class and bucket: how many had a lower value, an equal one, and all."""

    lower: int
    equal: int
    runs: int
    stopped: int = 0
    """Runs of the tag and GPU class that were stopped for their rank at an earlier bucket."""
    trend: Trend = NO_TREND


@dataclass(frozen=True)
class RetestFacts:
    """What one more run of an experiment's code is decided on."""

    experiment: Experiment
    retests: Sequence[Experiment]
    """In the order in which they were begun."""
    tag: Tag
    policy: Policy


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


@dataclass(frozen=True)
class RetractionFacts:
    """The neighbours of a judged experiment whose result is taken back."""

    experiment: Experiment
    tag: Tag
    policy: Policy
    best: Best | None
    """Under the experiment's comparability key, as all that follows."""
    main_best: Best | None
    """Under the tag's main key; the same where the experiment's is that."""
    keeps: Sequence[Experiment]
    """Keeps that beat the best of their time: the best ones, best first."""
    beaten: Sequence[Experiment]
    """The best of all else that was judged, best first."""
    runs: Sequence[Experiment]
    """Of its code, retests too, in the order in which they ended."""
    noise: Spread
    """Of its tag and class of GPU, with the runs of its code and those of each of `noise_workers`."""
    noise_workers: Sequence[str]
    """In a swarm: the workers of these runs."""
    rank_classes: Sequence[str] = ()
    """Classes of GPU whose runs are ranked; its attempts may have been on several."""


R = TypeVar("R", bound=OneRun, covariant=True)


@dataclass(frozen=True)
class Runs(Generic[R]):
    """An experiment with every further run of its code, in the order in which they were begun."""

    experiment: R
    retests: tuple[R, ...] = ()


@dataclass(frozen=True)
class BestFacts:
    """A tag's best under its main comparability key."""

    tag: Tag
    best: Best
    runs: Runs[Experiment]
    noise: Spread
    """Of the best's class of GPU; read where there are retests."""


@dataclass(frozen=True)
class NearFacts:
    """The discards that came near to a tag's best."""

    direction: Direction
    best: float | None
    found: Sequence[Experiment]
    """The nearest first, as many as were asked for."""
    total: int


@dataclass(frozen=True)
class LiveLog:
    """What a run says while it goes on, and after."""

    status: Status
    log: str
    progress: float | None
    metric: float | None
    """What it has reported last."""


@dataclass(frozen=True)
class ShownFacts:
    runs: Runs[Experiment]
    direction: Direction
    compared: Runs[OneRun] | None
    """The best that it was compared with."""
    policy: Policy
    noise: Spread
    """Of its class of GPU; read where there are retests."""
    patch: bytes | None
    """Against the tag's base commit, as it was sent."""
    attempts: Mapping[int, Mapping[str, str]]
    """Status, GPU, fence and times of each, by number."""
    ticks: Sequence[tuple[float, float, float]]
    """The newest (progress, metric, time) that the run reported."""
    log: str | None
    late_results: Sequence[Mapping[str, Any]]
    """Results that came too late to count."""
    certificate: Certificate | None
    transfers: Sequence[Transfer]


@dataclass(frozen=True)
class ExperimentFacts:
    """An experiment as it is now, with its tag and every GPU."""

    now: float
    experiment: Experiment
    tag: Tag
    policy: Policy
    slots: Sequence[GpuState]


@dataclass(frozen=True)
class TrainFacts(ExperimentFacts):
    """It is to be trained."""

    holds: bool
    """The lease that it names is its own."""


@dataclass(frozen=True)
class WaitFacts(ExperimentFacts):
    """Its agent waits for it."""

    best: Best | None
    crashes_in_a_row: int


@dataclass(frozen=True)
class ContextFacts:
    """What stands above and beside some parents."""

    tag: Tag
    selection: Selection | None
    """What names the parents; None: the caller does."""
    parent_ids: Sequence[str]
    ancestors: Mapping[str, Experiment]
    """By id, with the parents themselves. Experiments that were not read are removed from all `parent_ids`."""
    is_whole: bool
    """Whether no ancestor was left out."""
    beside: Sequence[Experiment]
    """The newest traces' roots, and what finished last."""
    newest: Mapping[Status, Sequence[Experiment]]
    """Of the whole tag, by status, oldest first."""
    best: Experiment | None
    """Of the tag."""


@dataclass(frozen=True)
class SearchFacts:
    """What a tag's next strategy and an agent's next idea are decided on."""

    tag: Tag
    policy: Policy
    strategy: Strategy
    noise: Spread
    """Of the tag's main class of GPU."""
    ends: Sequence[End]
    """How the newest experiments ended, oldest first.

    Under the published rule none where the strategy was decided after all of them.
    """
    near_count: int
    """Near misses of the tag's best."""
    categories: Mapping[str, tuple[int, int]]
    """Total and kept of every category that was tried."""
    crashes_in_a_row: int
    least_tried: str
    """The category to look at where the search explores."""
    tries: Sequence[Sketch]
    """The newest experiments of that category, oldest first."""
    combined: Sequence[Sequence[str]]
    """Parents of the newest experiments that have several; read where the mode is combine or may become so."""
    best: Best | None
    base: Sketch | None
    """The best's experiment; with a selection the experiment that its branch stands on."""
    near: Sequence[Mention]
    """Near misses of the best, the nearest first; read without a selection."""
    recent: Sequence[Sketch]
    """The newest that finished, oldest first; read without a selection."""
    chosen: Selection | None
    """The selected branch. What follows is of it."""
    ancestors: Mapping[str, Experiment]
    """Its parents and their ancestors, by id. Experiments that were not read are removed from all `parent_ids`."""
    merging: Sequence[Sketch]
    """What a merge brings together."""
    beside: Sequence[Sketch] | None
    """The first experiments of the newest branches; None: the branch is no new root, or the tag's first."""
