"""The records: frozen values with their text form in a Redis hash, in which every float comes back exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict

Status = Literal[
    "registered",
    "queued",
    "leased",
    "running",
    "keep",
    "discard",
    "crash",
    "timeout",
    "stopped",
    "lost",
    "invalid",
    "measured",
]
RETESTED: Status = "measured"
"""The end of a retest that has a value: no keep and no discard, but evidence for the experiment that it repeats."""
STATUSES: tuple[Status, ...] = tuple(s for s in get_args(Status) if s != RETESTED)
"""What an experiment may be, a retest aside."""
OPEN: frozenset[Status] = frozenset({"registered", "queued", "leased", "running"})

Direction = Literal["minimize", "maximize"]
SelectionKind = Literal["new_root", "extend", "branch", "merge"]
SelectionStatus = Literal["open", "committed", "released", "expired"]
TraceStatus = Literal["pending", "live", "merged", "dead", "closed"]
"""`pending`: its first experiment is not finished."""
Mode = Literal["explore", "exploit", "combine", "ablation"]
GpuStatus = Literal["idle", "training", "draining", "offline", "unhealthy"]
Trust = Literal["provisional", "unconfirmed", "confirmed", "demoted"]
"""How far a keep under the rule `confirmed` can be trusted: a retest will tell; nobody runs it again; it was borne
out, or ahead by more than noise explains; it was not, and is a discard now."""
Role = Literal["viewer", "agent", "worker", "operator"]
"""Whose callers there are: a viewer reads, an agent reads and researches, a worker serves its own GPUs."""
ROLES: tuple[Role, ...] = get_args(Role)


class Record(BaseModel):
    """A frozen value that stands in one Redis hash; a field that is None stands nowhere."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> Self:
        """From a hash as Redis returns it."""
        plain = _plain(cls)
        return cls.model_validate(
            {
                name: text if name in plain else json.loads(text)
                for name, text in fields.items()
                if name in cls.model_fields and text != ""
            }
        )

    def flat(self) -> dict[str, str]:
        """As fields of a hash."""
        return flatten(self.model_dump(exclude_none=True))


def flatten(values: Mapping[str, Any]) -> dict[str, str]:
    """Text stays text, everything else is JSON; NaN is refused.

    Raises:
        ValueError: NaN or infinity.
    """
    return {
        name: value if isinstance(value, str) else json.dumps(value, allow_nan=False, separators=(",", ":"))
        for name, value in values.items()
        if value is not None
    }


@cache
def _plain(cls: type[Record]) -> frozenset[str]:
    """Names of the fields that are text."""
    return frozenset(name for name, info in cls.model_fields.items() if _is_text(info.annotation))


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) in (UnionType, Union):  # a Literal or None is the older kind
        return any(_is_text(a) for a in get_args(annotation) if a is not NoneType)
    if get_origin(annotation) is Literal:
        return all(isinstance(a, str) for a in get_args(annotation))
    return annotation is str


def stamp(seconds: float) -> str:
    """Seconds of Redis' clock as RFC 3339 in UTC, milliseconds kept."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Tag(Record):
    """One line of research, with its counters; `total` counts keep, discard, crash and timeout."""

    name: str
    branch: str
    created_at: float
    metric: str = "val_bpb"
    direction: Direction = "minimize"
    target: float | None = None
    base_commit: str | None = None
    evaluator: str = "prepare.py"
    last_number: int = 0
    total: int = 0
    kept: int = 0
    discarded: int = 0
    crashed: int = 0
    """Crashes and timeouts."""
    stopped: int = 0
    lost: int = 0
    invalid: int = 0
    training_seconds: float = 0.0
    paused_at: float | None = None
    """Since when nothing of it is dispatched; None while it is not paused."""
    pause_reason: str | None = None
    budget_gpu_seconds: float | None = None
    """Most GPU seconds that may be spent and reserved; None is no limit."""
    budget_runs: int | None = None
    reserved_gpu_seconds: float = 0.0
    """Set aside for open runs; a whole number of milliseconds, as `spent_gpu_seconds`."""
    reserved_runs: int = 0
    spent_gpu_seconds: float = 0.0
    """What `state.budgets` says."""
    spent_runs: int = 0
    key_version: int = 0
    key_gpu_class: str | None = None
    key_evaluator_hash: str | None = None
    key_budget_seconds: float | None = None


class Choice(BaseModel):
    """What an experiment is made from, chosen once and never changed."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    selection_id: str | None = None
    """None where nobody selected: the parent that was named, else the branch of the best."""
    select_seq: int | None = None
    """How many selections its tag had made with it."""
    kind: SelectionKind
    trace_id: str
    parent_ids: list[str]
    expected_tip: str | None = None
    """The trace's tip at that time: the new node becomes the tip if it still is."""
    base_experiment_id: str | None = None
    """The best kept ancestor, the code to build on; None: nothing was kept yet."""
    base_commit_sha: str | None = None
    sources: dict[str, str] = {}
    """Traces that a kept merge ends, each with its tip at that time."""
    combines: list[str] | None = None
    """Of a merge of traces: their bases, whose changes are brought together."""
    epoch: int = 1
    scheduler: str | None = None
    """Who chose the trace; None: the caller named it."""
    reason: str = ""


class Experiment(Record):
    """One try: its hypothesis, its code, its attempts, its outcome."""

    experiment_id: str
    tag: str
    number: int
    status: Status
    hypothesis: str
    description: str
    category: str
    commit_sha: str
    diff_summary: str
    diff_id: str | None = None
    """SHA-256 of the patch against the tag's base commit."""
    owner: str | None = None
    """Whose token registered it; None: nobody's in particular."""
    parent_ids: list[str] = []
    duplicate_of: str | None = None
    agent: str | None = None
    seed: int | None = None
    retest_of: str | None = None
    """The experiment whose code it runs again; None for an experiment."""
    retests: int = 0
    """Retests that were begun: `<id>.2` is its second run, and so on."""
    config_delta: dict[str, Any] | None = None
    trace_id: str | None = None
    """The branch that it was made for; None: no trace's."""
    selection_id: str | None = None
    local_selection: list[int] | None = None
    """Its parents' numbers; empty is a new root, None is no selection."""
    selection: Choice | None = None
    committed: bool = False
    """It is a node of its trace."""
    forked: bool = False
    """Its parent was no longer its trace's tip when it came in: a leaf beside the branch."""
    outdated: bool = False
    """It was selected in an earlier epoch than it came in: it is never a parent."""
    branch_improved: bool | None = None
    """Whether it beats its branch's base."""
    policy_version: int = 0
    keep_rule: str = "strict"
    trust: Trust | None = None
    best_key: str | None = None
    """Comparability key that it was judged under, where that is not the tag's main one."""
    patience_s: float = 1800.0
    """Seconds without a word from its agent after which a registered experiment is lost."""
    traceparent: str | None = None

    attempt: int = 0
    """0 while nothing was queued; agents that train themselves stay there."""
    fence: int = 0
    """Fence of the newest lease; 0 without one."""
    gpu_id: str | None = None
    pinned_gpu: str | None = None
    priority: int = 0
    budget_s: float | None = None
    timeout_s: float | None = None
    reserved_gpu_seconds: float | None = None
    """Set aside for it from the tag's budget while it is open."""
    stopping: bool = False
    stop_reason: str | None = None

    registered_at: float
    queued_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    finish_number: int | None = None
    last_metric: float | None = None
    last_progress: float | None = None

    val_bpb: float | None = None
    """The tag's metric, whatever its name, as measured."""
    peak_vram_mb: float | None = None
    training_seconds: float | None = None
    total_tokens_m: float | None = None
    mfu_percent: float | None = None
    num_steps: float | None = None
    num_params_m: float | None = None
    depth: float | None = None
    metrics: dict[str, float] = {}
    gpu_class: str | None = None
    evaluator_hash: str | None = None
    budget_seconds: float | None = None
    improved: bool | None = None
    delta: float | None = None
    p_better: float | None = None
    """Probability that its true value beats the best's of its time; None: the noise was not known yet."""
    near_miss: bool | None = None
    base_commit_sha: str | None = None
    error: str | None = None
    error_kind: str | None = None


class Link(BaseModel):
    """An experiment with the value that it was chosen by."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    experiment_id: str
    val_bpb: float
    commit_sha: str


class Best(Record):
    """The lowest (or highest) value kept under one comparability key."""

    experiment_id: str
    val_bpb: float
    commit_sha: str
    updated_at: float
    version: int = 0
    chain: list[Link] = []
    """Under the rule `confirmed`: the incumbent that can be trusted, then every keep on top of it that waits for its
    retests; the last one is this best. Empty under the strict rule."""
    rivals: list[Link] = []
    """Discards that were judged by the value of a keep in the chain and are better than its incumbent, best first."""

    def standing(self) -> list[Link]:
        """The chain; of one link where the rule is strict."""
        return self.chain or [Link(**self.model_dump(include={"experiment_id", "val_bpb", "commit_sha"}))]


class Selection(Record):
    """A lease on what one experiment is made from: it leaves `open` exactly once."""

    selection_id: str
    tag: str
    select_seq: int
    epoch: int
    kind: SelectionKind
    trace_id: str
    parent_ids: list[str] = []
    local_selection: list[int] = []
    expected_tip: str | None = None
    base_experiment_id: str | None = None
    base_commit_sha: str | None = None
    sources: dict[str, str] = {}
    combines: list[str] | None = None
    scheduler: str | None = None
    reason: str = ""
    scores: dict[str, float] | None = None
    agent: str | None = None
    owner: str | None = None
    """Whose token selected; None: nobody's in particular."""
    status: SelectionStatus = "open"
    lease_s: float = 900.0
    created_at: float
    lease_expires_at: float
    """Before this it has to be registered, or renewed."""
    finished_until: int = 0
    """Experiments of the tag that were finished by then: what was tried beside it is told up to there."""
    experiment_id: str | None = None
    """What was registered with it: it stays open for as long as that is."""
    ended_at: float | None = None


class Trace(Record):
    """A branch of the tag's experiments that grows by itself.

    `tip` is the last committed node, failures too; `base` is the best that it has kept, the code to build on.
    """

    trace_id: str
    tag: str
    number: int
    status: TraceStatus
    kind: SelectionKind = "new_root"
    """How it began."""
    origin: str | None = None
    """The node that a branch began at."""
    root: str | None = None
    tip: str | None = None
    base: str | None = None
    base_commit_sha: str | None = None
    length: int = 0
    """Nodes committed."""
    kept: int = 0
    selections: int = 0
    """How often it was selected."""
    in_flight: int = 0
    """Open selections on it."""
    scores: str = ""
    """Of its newest nodes, oldest first, lower is better, `x` for a crash."""
    best_score: float | None = None
    crashes_in_a_row: int = 0
    since_best: int = 0
    """Nodes since its best value."""
    virtual_time: int = 0
    """When its next turn comes, in the tag's virtual time; see `rules.traces.next_turn`."""
    last_selected: int = 0
    """`select_seq` of its newest selection."""
    priority: float = 0.0
    version: int = 0
    """Raised with every commit and change of status."""
    created_at: float
    ended_at: float | None = None
    reason: str | None = None
    """Why it ended."""
    merged_into: str | None = None


@dataclass(frozen=True)
class Forest:
    """The traces of a tag that may be selected, as they were read."""

    tag: str
    select_seq: int = 0
    epoch: int = 1
    virtual_time: int = 0
    last_trace: int = 0
    branches: int = 0
    """Traces that there are, ended ones too, the tag's own line aside."""
    growing: tuple[Trace, ...] = ()
    """Live and pending ones, by number."""


@dataclass(frozen=True)
class ForestRecords:
    """Every trace of a tag, and what is selected on them."""

    traces: Sequence[Trace]
    live: frozenset[str]
    """The index of those that grow."""
    open: Mapping[str, float]
    """Open selections with the ends of their leases."""
    selections: Mapping[str, Selection]
    """Their records."""


class Footprint(BaseModel):
    """What the memory of a GPU holds at one moment."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    used_mb: float
    processes: dict[int, float] | None = None
    """MiB by process id, whoever's; None where the driver does not list processes."""


class Gpu(Record):
    """One GPU or CPU slot, and the lease on it."""

    gpu_id: str
    gpu_index: int
    gpu_name: str
    vram_mb: float
    uuid: str | None = None
    host: str | None = None
    boot_id: str | None = None
    labels: dict[str, str] = {}
    owner: str | None = None
    """Whose token registered it; None: the lab's own worker."""
    status: GpuStatus = "idle"
    offline: bool = False
    """Nobody has heard of it."""
    sick: str | None = None
    """Why it is unhealthy."""
    drained: bool = False
    """An operator lends it to nobody."""
    unproven: bool = False
    """A run on it is over, and its keeper has not yet proven that nothing of it is left there."""
    footprint: Footprint | None = None
    """Its memory before the newest run, until that run is proven gone; none for a CPU slot."""
    leaving: bool = False
    """Its worker ends after the present run."""
    registered_at: float = 0.0
    heartbeat_at: float = 0.0
    idle_since: float | None = None
    holder: str | None = None
    """The experiment that holds the lease."""
    attempt: int = 0
    fence: int = 0
    leased_at: float | None = None
    lease_expires_at: float | None = None
    runner: str | None = None
    """`<host>:<pid>:<start time>` of the process that runs the attempt; none for an agent's own lease."""
    consecutive_crashes: int = 0
    tripped: str | None = None
    """Why its breaker is open: so many runs in a row crashed on it that it gets none until `tripped_until`."""
    tripped_until: float | None = None
    trips: int = 0
    """How often the breaker opened since a run last succeeded."""
    health: dict[str, Any] | None = None
    sampled_at: float | None = None
    good_samples: int = 0


class Strategy(Record):
    """How a tag's search goes on."""

    mode: Mode
    explore_ratio: float
    temperature: float
    reason: str
    updated_at: float = 0.0
    version: int = 0
    pinned_until: int = 0
    """Finish count up to which an operator's choice stands."""
    decided_at: int = 0
    """Finish count it was last decided at."""
