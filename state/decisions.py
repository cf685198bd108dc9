"""What is decided about an experiment, from its entry to its end; values only, no IO.

Each value holds what its decision used. The change commits it if that is unchanged. If not, it decides again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel

from state.derived import Derived
from state.facts import NOTHING, RetractionFacts, Spread, Trend
from state.policy import Policy, TickSource
from state.records import Best, Experiment, Gpu, GpuState, Idea, Record, Selection, Status, Tag, Trace


class Later(Protocol):
    """A number that is known once a change is committed."""

    value: int


class Parent(Record):
    """An experiment that is named as a parent."""

    tag: str
    retest_of: str | None = None
    outdated: bool = False
    trace_id: str | None = None


@dataclass(frozen=True)
class EntryFacts:
    """Facts about a tag and an idea that asks to enter it."""

    now: float
    tag: Tag
    policy: Policy
    policy_version: int
    crashes: int = 0
    """In a row."""
    first: Experiment | None = None
    """What the same request registered before."""
    parents: Mapping[str, Parent] = field(default_factory=dict)
    """Those that the idea names, as far as there are any."""
    epoch: int = 1
    selection: Selection | None = None
    selection_ends: float | None = None
    """When its lease ends; None: it is not open."""
    branch: Trace | None = None
    """Branch of the first named parent, or of the best. None with a selection, or in a tag with a single trace."""
    slots: Sequence[GpuState] = ()
    """Every GPU; none where the idea is not to be trained."""
    best: Experiment | None = None
    """The tag's best, where its policy may refuse all else."""
    tried: Mapping[str, str | None] = field(default_factory=dict)
    """Who tried its code first, by the code's names. The first of these is the surest."""
    tip: str | None = None
    """What finished last in the tag, or else its baseline."""
    has_patch: bool = False
    """The lab has its patch."""
    of_tag: Mapping[str, str | None] = field(default_factory=dict)
    """The tag's fields as they are stored: what it may take of its budget, and whether its experiments wait aside."""

    @property
    def duplicate_of(self) -> str | None:
        """The first experiment with the same patch or commit."""
        return next(
            (first for name, first in self.tried.items() if first and not name.startswith("commit:")), None
        )


@dataclass(frozen=True)
class Entry:
    """An idea that may enter."""

    idea: Idea
    follows_tip: bool = False
    """Its parent is the tip of the tag's one line."""


@dataclass(frozen=True)
class Run:
    """What is asked of a worker."""

    priority: int
    budget_s: float
    timeout_s: float
    pinned_gpu: str | None = None
    config_delta: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """An experiment that may wait, once its change is committed."""

    counts: Sequence[Later] = ()
    """Experiments in the wait queue up to it."""

    @property
    def position(self) -> int:
        """In the wait queue, counted from 1; 0 where it does not wait."""
        return sum(count.value for count in self.counts)


@dataclass(frozen=True)
class Entered(Waiting):
    """An experiment that is registered."""

    tag: str
    handed_out: Later
    duplicate_of: str | None
    parent_ids: Sequence[str]

    @property
    def number(self) -> int:
        return self.handed_out.value

    @property
    def experiment_id(self) -> str:
        return f"{self.tag}-{self.number}"


HeldLease = Literal["used", "returned"]
"""Fate of the lease of an experiment that is queued."""


@dataclass(frozen=True)
class Queued(Waiting):
    """An experiment that is to be trained."""

    status: Literal["queued", "leased"]
    attempt: int


RETEST_PRIORITY = 7
"""A retest goes before new ideas: they are built on what it decides."""


class GpuCrashes(NamedTuple):
    """A GPU's crashes in a row after a run that a worker trained on it."""

    in_a_row: int
    trip_reason: str | None = None
    """Its breaker opens: why."""
    trip_s: float | None = None
    """Seconds that the GPU is out for then."""


class Repeat(NamedTuple):
    """What a run's value adds to the noise of its tag and GPU class; see `state.noise`."""

    code: str
    entries: Mapping[str, str]
    """What is kept after it of the runs of its code, and of its worker's runs of it."""
    change: Spread
    """What it adds to the sums. Below 0: it contradicts the first run of its code, which counts no longer."""


@dataclass(frozen=True)
class Growth:
    """Changes of a trace by a node, with the versions that the decision used."""

    trace: Trace
    """As it was read."""
    epoch: int
    fields: Mapping[str, Any]
    status: Literal["", "live", "dead"] = ""
    """New status of the trace; empty: it stays."""
    why: str = ""
    ends: Sequence[Trace] = ()
    """Traces that a kept merge ends, as they were read."""
    begins_on: str | None = None
    """The keep that its first node makes its base: the guard is that it is kept still."""


@dataclass(frozen=True)
class Learnt:
    """What the end of a run tells of ends: see `functions/runs/rules/stopping.py`."""

    value: float
    """What it ended with, as it was ranked on its way."""
    place: float
    """Its place among the ends of its class of GPU."""
    trends: Mapping[str, Trend]
    """What it adds at each bucket."""


class Ending(NamedTuple):
    """An experiment's final status and everything that follows from it."""

    experiment: Experiment
    """As it was read."""
    status: Status
    fields: Mapping[str, Any] = NOTHING
    answer: BaseModel | None = None
    """What a repetition of the same report is answered."""
    report: Mapping[str, str] | None = None
    """By what a repetition is known: {op, digest}."""
    reason: str | None = None
    """Why an experiment without a result ended."""
    training_seconds: float | None = None
    best: Best | None = None
    """The best under its comparability key, with what the decision changes of it; None: it stays."""
    other_key: str | None = None
    """Comparability key, where it is not the tag's main one."""
    learned: Mapping[str, Any] = NOTHING
    """Parts of the tag's main key that the run is the first to know, and more fields of the tag."""
    crashes: int | None = None
    lifts_abort: bool = False
    """So many crashes refused what is new until now."""
    gpu: GpuCrashes | None = None
    references: Mapping[str, str] = NOTHING
    """Times and paces that runs are compared with, as they are stored, by their class."""
    repeat: Repeat | None = None
    growth: Growth | None = None
    """Where it is a node of a trace."""
    learnt: Learnt | None = None
    """Where it was ranked on its way, and ended with a value."""
    returned: str | None = None
    """Of a swarm's run that is lost: its config as a proposal for another worker."""

    def with_answer(self, told: Mapping[str, Any]) -> Ending:
        """The same, with these fields both stored and answered."""
        answer = self.answer.model_copy(update=told) if self.answer else None
        return self._replace(fields={**self.fields, **told}, answer=answer)


Told = Literal["continue", "stop", "extend"]


@dataclass(frozen=True)
class Rank:
    """The rank of a run at a bucket, and the advice that it gets there if it had none."""

    rank_class: str
    """See `state.experiments.ranking.rank_class`."""
    bucket: float
    value: float
    """What it is ranked by."""
    metric: float
    """What it has reported."""
    progress: float
    told: Told
    tick_source: TickSource = "report"
    reason: str | None = None
    """Why it is stopped."""
    extra_s: float | None = None
    """What it is given more."""
    place: float | None = None
    """Its place among all runs that came so far; None: too few have."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """What the decision was made of, for the event."""


@dataclass(frozen=True)
class HandOut:
    """A config for a worker of a swarm, with what may have changed since that was decided."""

    idea: Idea
    fingerprint: str
    population_id: str
    strategy: str
    priority: float
    """0 to 1."""
    budget_s: float
    lost_after_s: float
    """Seconds without a word of its worker after which the run is lost."""
    dimensions_version: int
    is_compared: bool = False
    """Its value is compared with those of other runs for a claim: it is not stopped early."""
    is_reference: bool = False
    """It is a run of a reference config: others are compared with it."""
    is_extra: bool = False
    """A run beside the one that its worker has."""
    most_active: int | None = None
    """Runs that its worker may have with this one; None: any number."""
    proposal: str | None = None
    """Its text among those that wait; None: it was drawn for this worker."""
    most_trials: int | None = None
    """Of the config, with those that are in flight; None: any number."""
    most_in_flight: int | None = None
    few: int = 0
    """Configs of its population that still wait when more are asked for."""


@dataclass(frozen=True)
class Retest:
    """One more run of an experiment's code."""

    of: Experiment
    """As it was read: how many retests it has is the guard."""
    seed: int
    run_s: float | None = None
    """Seconds that the lab trains it, set aside from the tag's budget; None: its agent trains it."""
    timeout_s: float | None = None
    agent: str | None = None
    """The agent that trains it. If the lab trains it: the agent whose turn it takes."""
    priority: int = RETEST_PRIORITY
    takes_turn: bool = False
    """It waits in a round of its agent's own."""
    pinned_gpu: str | None = None
    """The only GPU that may run it."""


@dataclass(frozen=True)
class Ruling:
    """What its retests make of an experiment."""

    experiment: Experiment
    status: Status
    fields: Mapping[str, Any]
    best: Best
    """As it was read."""
    after: Best
    verdict: Literal["confirmed", "demoted", "promoted", "revalued", "unconfirmed"] | None
    """What the event is called; None: there is nothing to tell."""
    facts: Mapping[str, Any]
    """Data of the event, beside its subject."""
    tag_fields: Mapping[str, Any] = field(default_factory=dict)
    shift: Derived = field(default_factory=Derived)
    growths: Sequence[Growth] = ()
    """Of its trace, and of those that stand on it."""
    finishes: int | None = None
    """Number of ended runs of the tag, if the decision used them."""


@dataclass(frozen=True)
class LeftNoise:
    """The noise without the runs that leave."""

    entries: Mapping[str, tuple[str, str]]
    """What is kept of the runs of its code, and of each worker's runs of it, before and after; empty: nothing."""
    change: Spread


@dataclass(frozen=True)
class Retraction:
    """A result that is taken back, with all that follows from it."""

    facts: RetractionFacts
    """As they were read: the guards."""
    fields: Mapping[str, Any]
    tag_fields: Mapping[str, Any]
    told: Mapping[str, Any]
    """What the event says."""
    after: Best | None
    """The best under its key; None: nothing is kept there."""
    leaving: Sequence[str]
    """Its runs, among those of its code."""
    left: LeftNoise | None
    """None where its runs do not count towards the noise."""
    shift: Derived
    changed: Sequence[tuple[Experiment, Experiment]] = ()
    """Other records, before and after: later results of the same code, and the first keep where none is left."""
    growths: Sequence[Growth] = ()
    """Of its trace, and of those that stand on it."""
    learnt: Mapping[str, Trend] = field(default_factory=dict)
    """What its end had added to the trends at its buckets."""


Gone = Literal["silent", "expired", "dead", "unproven"]
"""Why a lease ends without its holder. The sweep judges the first two by Redis' clock. The GPU's keeper reports
`dead` if nothing of the run is left on the GPU, and `unproven` if something may be."""


AfterLease = Literal["requeued", "same_attempt", "stopped", "lost"]
"""What happens to an experiment after its lease was broken.

`requeued`: it waits for another attempt. `same_attempt`: it waits again with its attempt. Else its final status."""


@dataclass(frozen=True)
class BrokenLease:
    """The decision to end a lease because its holder is gone. `gpu` and `experiment` are as they were read."""

    gpu: Gpu
    experiment: Experiment
    why: Gone
    reason: str
    then: AfterLease | None
    """None: no attempt of the experiment runs under the lease."""
    flags: Mapping[str, Any]
    cleared: Sequence[str] = ()

    @property
    def status(self) -> Status | Literal[""]:
        """The experiment's new status; empty where it needed none."""
        if self.then == "stopped" or self.then == "lost":
            return self.then
        return "queued" if self.then else ""
