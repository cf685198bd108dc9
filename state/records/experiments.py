"""One experiment, and the best of a tag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, Literal, get_args

from pydantic import Field

from state.policy import KeepRuleName, TickSource
from state.records.base import Finite, Record
from state.records.traces import SelectionRecord

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
    "retracted",
    "measured",
]


RETESTED: Status = "measured"
"""The end of a retest that has a value: no keep and no discard, but evidence for the experiment that it repeats."""


STATUSES: tuple[Status, ...] = tuple(s for s in get_args(Status) if s != RETESTED)
"""Statuses of an experiment that is no retest."""


JUDGED: frozenset[Status] = frozenset({"keep", "discard", "crash", "timeout"})
"""Statuses that enter the finish order and the tag's total."""
COUNTERS: Mapping[Status, str] = {
    "keep": "kept",
    "discard": "discarded",
    "crash": "crashed",
    "timeout": "crashed",
    "stopped": "stopped",
    "lost": "lost",
    "invalid": "invalid",
    "retracted": "retracted",
}
"""The tag's counter of each final status."""
OPEN: frozenset[Status] = frozenset({"registered", "queued", "leased", "running"})


Trust = Literal["first", "provisional", "unconfirmed", "confirmed", "demoted"]
"""Evidence for a keep. `first`: the first run under its comparability key had nothing to be compared with.

The others are of the rule `confirmed`. `provisional`: it waits for a retest. `unconfirmed`: nobody can run it again.
`confirmed`: retests agree, or its lead exceeds the noise. `demoted`: retests disagree, and it is a discard now."""


Score = Literal["reported", "trusted"]
"""Source of a value: printed by the scored code, or measured by the tag's evaluator in a process without that
code."""


class TimeSpent(Finite):
    """Training time of a run, without its scoring."""

    wall_seconds: float
    cpu_seconds: float | None = None
    """CPU seconds of all its processes; None: not measured."""


class ReferenceTime(TimeSpent):
    """The time that runs of one GPU class are compared with."""

    experiment_id: str
    budget_s: float | None = None
    baseline: bool = False
    """Whether it is the time of the tag's baseline."""


class Pace(Finite):
    """Speeds of a run, each for one second of training; None: not measured."""

    experiment_id: str
    """The experiment, for a retest the one that it repeats."""
    steps: float
    tokens_m: float | None = None
    mfu_percent: float | None = None
    cpu_seconds: float | None = None
    """CPU seconds of all its processes, on a CPU slot."""


class Mention(Record):
    """Fields of an experiment's code in a suggestion."""

    experiment_id: str
    category: str
    diff_summary: str


class Weight(Record):
    """How much a value counts."""

    judged_val_bpb: float | None = None
    """The mean of all runs of its code, by which it was judged; None for the first of them."""
    over_budget: bool = False
    """It trained for longer than its budget, compared with the baseline: its value counts for nothing. `reason` has
    the figures."""
    guard: str | None = None
    """The guard that it broke: check, peak_vram_mb or a metric's name. Its value counts for nothing; `reason` has the
    value and the limit."""
    contended: bool = False
    """Another program slowed an attempt of it down. That attempt's value counts for nothing, and it ran again."""
    trust: Trust | None = None
    """Evidence for a keep: first, provisional, unconfirmed, confirmed or demoted; null: its rule asks for none."""


class RunVerdict(Weight):
    """The verdict on a run: what is stored with its experiment is what is answered."""

    improved: bool | None = None
    delta: float | None = None
    """Its gain over the best of its time; positive is better."""
    near_miss: bool | None = None
    base_commit_sha: str | None = None
    """What to go back to."""
    p_better: float | None = None
    """Probability that its true value beats the best's of its time; None: the noise or the best is not known."""
    branch_improved: bool | None = None
    """Whether it beats its branch's base, where the tag has several traces. If so, it is kept on the branch. None:
    the two cannot be compared. It is then kept as the best of its own kind, and the branch stays on its base."""
    compared_with: str | None = None
    """The best that it was compared with."""
    repeats_best: bool = False
    """It has the code of that best, so it is no progress."""
    reason: str | None = None
    """Why it was not simply compared with the tag's best: its code was measured before, or under other conditions."""
    hidden_refused: bool = False
    """It would have been kept, but the hidden split of its tag does not bear it out."""


class Measured(Weight):
    """A value, and what it counts as."""

    val_bpb: float | None = None
    """The tag's metric, whatever its name, as measured."""
    delta_bpb: float | None = None
    """Value of a swarm's run minus its worker's baseline. It is judged by it, unless `by_value`."""
    by_value: bool = False
    """Whether a swarm's run is judged by `val_bpb`, because its tag compares values."""
    score: Score | None = None
    """Source of `val_bpb`: printed by train.py, or measured by the tag's trusted evaluator. None: no value."""
    reported: float | None = None
    """Value printed by train.py if `val_bpb` is trusted. For a claim that the lab has run: the agent's number."""

    claimed: bool = False
    """Measured by its agent, in a tag that the lab measures."""
    measured_by: str | None = None
    """Run in which the lab measured a claim; `val_bpb` is the value of that run."""

    @property
    def is_claim(self) -> bool:
        """Measured only by its agent: the lab has not run it."""
        return self.claimed and self.measured_by is None

    @property
    def judged(self) -> float | None:
        """The value that it is compared by."""
        return self.own_value if self.judged_val_bpb is None else self.judged_val_bpb

    @property
    def own_value(self) -> float | None:
        """The value of this one run, without other runs of its code."""
        if self.over_budget or self.guard is not None:
            return None
        return self.val_bpb if self.delta_bpb is None or self.by_value else self.delta_bpb

    @property
    def by_delta(self) -> bool:
        """Whether it is compared by `delta_bpb`; else by `val_bpb`."""
        return self.delta_bpb is not None and not self.by_value


class OneRun(Measured):
    """A run as it is compared with other runs."""

    experiment_id: str
    status: Status
    seed: int | None = None
    reason: str | None = None
    """Why it was not simply compared with the tag's best."""

    @property
    def is_evidence(self) -> bool:
        """A retest whose value counts."""
        return self.status == RETESTED and self.val_bpb is not None and not self.claimed


class ChangedRun(OneRun):
    """A run of which something has changed, as far as retests and claims follow from it."""

    tag: str
    best_key: str | None = None


class Sketch(Mention, OneRun):
    """An experiment in a few words, for lists and suggestions."""

    FOR_AGENTS: ClassVar[tuple[str, ...]] = (
        *("experiment_id", "status", "val_bpb", "delta_bpb", "reported", "trust", "claimed", "over_budget"),
        *("category", "description", "agent", "commit_sha", "error_kind", "error"),
    )
    """Fields that agents use of an experiment. The lists of report::brief and of the MCP tools show only these."""

    number: int
    description: str
    commit_sha: str
    agent: str | None = None
    retest_of: str | None = None
    """A retest: the experiment whose code it runs again; None for an experiment of its own."""
    last_progress: float | None = None
    error: str | None = None
    error_kind: str | None = None


class Result(OneRun):
    """End of an experiment, for plots and statistics."""

    category: str
    description: str
    baseline: bool = False
    p_better: float | None = None
    finished_at: float | None = None
    finish_number: int | None = None


class KeepRecord(Result):
    """A keep, and what it was made from."""

    number: int
    agent: str | None = None
    diff_id: str | None = None
    hung: bool = False
    compared_with: str | None = None
    selection: SelectionRecord | None = None

    @property
    def made_from(self) -> str | None:
        """The keep whose code it changed: its branch's base, else the best that it was compared with."""
        base = self.selection.base_experiment_id if self.selection else None
        return base or self.compared_with


class ComparedRun(OneRun):
    """A run with what its gain needs."""

    agent: str | None = None
    baseline: bool = False
    retests: int = 0
    retest_of: str | None = None
    compared_with: str | None = None
    delta: float | None = None


class RunRow(ComparedRun):
    """An experiment as a row of a table, and a point of a plot."""

    number: int
    hypothesis: str = ""
    description: str = ""
    category: str
    worker_id: str | None = None
    gpu_id: str | None = None
    gpu_type: str | None = None
    trace_id: str | None = None
    parent_ids: list[str] = Field(default_factory=list)
    near_miss: bool | None = None
    error_kind: str | None = None
    training_seconds: float | None = None
    wall_seconds: float | None = None
    registered_at: float
    finished_at: float | None = None


class VariedRow(RunRow):
    """The same with its constants; None where they are long."""

    config_delta: dict[str, Any] | None = None


class AgentRun(Measured):
    """A run in the account of its agent."""

    agent: str | None = None
    status: Status
    baseline: bool = False
    retest_of: str | None = None
    wall_seconds: float | None = None
    training_seconds: float | None = None
    registered_at: float
    finished_at: float | None = None


class FailureRecord(Record):
    """A run that came to no value."""

    experiment_id: str
    status: Status
    description: str
    error: str | None = None
    error_kind: str | None = None


class Idea(Record):
    """An idea, as it is registered."""

    tag: str
    hypothesis: str
    hypothesis_id: str | None = None
    """The hypothesis of its tag that it tests."""
    description: str
    category: str
    commit_sha: str
    diff_summary: str
    diff_id: str | None = None
    """SHA-256 of the patch against the tag's base commit."""
    owner: str | None = None
    """Owner of the token that registered it; None: a lab without tokens."""
    parent_ids: list[str] = Field(default_factory=list)
    agent: str | None = None
    seed: int | None = None
    config_delta: dict[str, Any] | None = None
    trace_id: str | None = None
    """The branch that it was made for; None: no trace's."""
    selection_id: str | None = None
    local_selection: list[int] | None = None
    """Numbers of its parents. Empty: a new root. None: no selection."""
    selection: SelectionRecord | None = None
    policy_version: int = 0
    keep_rule: KeepRuleName = "auto"
    """Rule of its tag at registration; after the verdict, the rule that judged it."""
    patience_s: float = 1800.0
    """Seconds of silence of its agent after which a registered experiment is lost."""
    pinned_gpu: str | None = None
    is_confined: bool = False
    """Its tag has a hidden split: only slots of the lab's own that confine their runs may run it."""
    traceparent: str | None = None

    @property
    def is_unpatched(self) -> bool:
        """No patch was sent with it, or an empty one."""
        return self.diff_id in _UNPATCHED


class ExperimentRecord(RunVerdict, Idea, Sketch):
    """One try: its idea, its attempts, its outcome."""

    baseline: bool = False
    """The tag's baseline. Its status is `keep` for any value, and no keep rate counts it."""
    duplicate_of: str | None = None
    """The first experiment of its tag with the same patch or commit."""
    tree_id: str | None = None
    """Identity of its files once its constants are set, the seed aside. Known after a worker has checked it out."""
    diff_differs: bool = False
    """The sent patch makes other files than the commit. The commit was trained, and its own patch is kept."""
    sent_diff_id: str | None = None
    """SHA-256 of the patch that was sent, where it differs."""
    retests: int = 0
    """Retests that were begun: `<id>.2` is its second run, and so on."""
    committed: bool = False
    """Whether it is a node of its trace."""
    forked: bool = False
    """Its parent was no longer its trace's tip at registration: a leaf beside the branch."""
    outdated: bool = False
    """Selected in an earlier epoch than it was registered: never a parent."""
    best_key: str | None = None
    """Comparability key of its judgement; None: the tag's main one."""

    attempt: int = 0
    """0 while nothing was queued; agents that train themselves stay there."""
    fence: int = 0
    """Fence of the newest lease; 0 without one."""
    gpu_id: str | None = None
    avoided_gpu: str | None = None
    """The slot on which it was disturbed. It runs again on another one of that class, if there is one."""
    priority: int = 0
    queue_round: int | None = None
    """The round of its agent that it waits in, until it had its turn; see `functions.pool.rules.lending`."""
    budget_s: float | None = None
    timeout_s: float | None = None
    reserved_gpu_seconds: float | None = None
    """Set aside for it from the tag's budget while it is open."""
    stopping: bool = False
    stop_reason: str | None = None
    extended_s: float | None = None
    """Seconds that it was given beyond its budget, for its rank."""
    used_extension: bool = False
    """Whether it has reported beyond its budget: it counts as extended."""
    base_metric: float | None = None
    """Value of an extended run nearest to the end of its budget, at `base_progress`."""
    base_progress: float | None = None
    told: dict[str, str] | None = None
    """Verdicts at its buckets, by `<attempt>:<bucket>`: continue, stop or extend."""

    ranked: dict[str, tuple[float, float]] | None = None
    """Rank at each bucket, 0 (worst) to 100, and the probability of a stop there."""
    places: dict[str, float] | None = None
    """Normal scores at each bucket among all runs, stopped ones too; see `functions/runs/rules/stopping.py`."""
    end_place: float | None = None
    """Normal score of its final value in its class of GPU; None: none, or never ranked."""
    rank_class: str | None = None
    """GPU class of its normal scores, with the source of its ticks if that is its output."""

    worker_id: str | None = None
    """A swarm's run: the worker that it was handed out to."""
    gpu_type: str | None = None
    """GPU of that worker."""
    baseline_bpb: float | None = None
    """Baseline of that worker at the hand-out."""
    fingerprint: str | None = None
    """Digest of its constants; equal for equal configs."""
    population_id: str | None = None
    population_strategy: str | None = None
    proposal_priority: float | None = None
    """0 to 1, as its worker saw it."""
    is_compared: bool = False
    """Compared with another run for a claim: never stopped for its rank."""
    is_reference: bool = False
    """Handed out as a run of its claim's reference config, for comparison with others."""
    is_extra: bool = False
    """Whether its worker chose the config."""
    handed_out: int = 0
    """Number of hand-outs to that worker; 2 if it asked again without a result."""
    sent_delta_bpb: float | None = None
    """The delta that the worker computed itself; only kept."""
    late_val_bpb: float | None = None
    """Value that its worker measured after the stop; never judged."""

    finish_number: int | None = None
    last_metric: float | None = None
    tick_source: TickSource = "report"
    """Origin of `last_metric`. report: the script's own. stdout: a printed loss."""

    peak_vram_mb: float | None = None
    training_seconds: float | None = None
    wall_seconds: float | None = None
    """Training seconds by its worker's clock, without scoring."""
    cpu_seconds: float | None = None
    """CPU seconds of all its processes in that time."""
    hung: bool = False
    """It hung after it printed its result, and its worker ended it. Its times end with that result."""
    total_tokens_m: float | None = None
    mfu_percent: float | None = None
    num_steps: float | None = None
    num_params_m: float | None = None
    depth: float | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    gpu_class: str | None = None
    evaluator_hash: str | None = None
    budget_seconds: float | None = None
    retracted_from: Literal["keep", "discard"] | None = None
    """Status before its result was taken back."""
    retracted_because: str | None = None


NO_CHANGE = b""
"""The patch of the base commit's own code."""
_UNPATCHED = (None, sha256(NO_CHANGE).hexdigest())


class Experiment(ExperimentRecord):
    """One try, with its times in seconds of Redis' clock."""

    @property
    def was_trained_here(self) -> bool:
        """A worker trained it, so a worker can train it again."""
        return self.attempt > 0 or self.measured_by is not None

    @property
    def can_run_again(self) -> bool:
        """Somebody else than its agent can run it again: a worker of the lab, or of its swarm."""
        return self.attempt > 0 or self.measured_by is not None or self.worker_id is not None

    @property
    def judged_by(self) -> Literal["strict", "confirmed"]:
        """Keep rule of its verdict."""
        if self.keep_rule == "auto":
            return "confirmed" if self.can_run_again else "strict"
        return self.keep_rule

    @property
    def time_classes(self) -> tuple[str, str, str]:
        """Names of the times that it is compared with: the baseline's on its class of GPU, the first run's with its
        budget, and the baseline's pace."""
        gpu = self.gpu_type or self.gpu_class
        return f"{gpu}|", f"{gpu}|{self.budget_s!r}", f"{gpu}|pace"

    def told_at(self, bucket: float) -> str | None:
        """Verdict on its newest attempt at this bucket; None: not reached."""
        return (self.told or {}).get(f"{self.attempt}:{bucket!r}")

    branches: int = 0
    """Traces that began on it, as their base."""
    registered_at: float
    queued_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None

    @property
    def steps_per_s(self) -> float | None:
        """Steps in a second of its training; None where no worker of the lab trained it, or it counts no steps."""
        seconds = self.training_seconds or self.wall_seconds
        return self.num_steps / seconds if self.attempt > 0 and self.num_steps and seconds else None


@dataclass(frozen=True)
class End:
    """End of an experiment."""

    status: Status
    error_kind: str | None = None
    baseline: bool = False
    category: str = "other"
    merges: bool = False
    """Whether it was made from several."""


class Link(Finite):
    """An experiment with the value that it was chosen by."""

    experiment_id: str
    val_bpb: float
    commit_sha: str
    code: str | None = None
    """Identity of its code in the noise; see `state.noise.code_of`."""
    trace_id: str | None = None
    """The branch that it was made for."""


class Seeds(Finite):
    """Scores of code on the first and the second fixed seed; lower is better.

    A pair is one code's score on the second seed less that on the first.
    """

    pairs: int = 0
    total: float = 0.0
    """The sum of the pairs, and of their squares."""
    squares: float = 0.0
    kept: int = 0
    """Pairs of code that was kept for good, and their sum: no lucky first run has picked so many of these."""
    kept_total: float = 0.0
    bar: float | None = None
    """Score on the first seed that both runs of the incumbent confirm; None: not known yet."""


class Best(Record):
    """The lowest (or highest) value kept under one comparability key."""

    experiment_id: str
    val_bpb: float
    commit_sha: str
    code: str | None = None
    """Identity of its code in the noise, and its branch, as in `Link`."""
    trace_id: str | None = None
    updated_at: float
    version: int = 0
    chain: list[Link] = Field(default_factory=list)
    """For the rule `confirmed`: the incumbent, then every keep above it that waits for its retests. The last one is
    this best. Empty for the strict rule."""
    rivals: list[Link] = Field(default_factory=list)
    """Discards that were judged by the value of a keep in the chain and are better than its incumbent, best first."""
    seeds: Seeds = Seeds()
    """Learned from every keep that was judged; forgotten when a result that it may hold is taken back."""

    def standing(self) -> list[Link]:
        """The chain; of one link where the rule is strict."""
        return self.chain or [Link.model_validate(self, from_attributes=True)]
