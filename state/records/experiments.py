"""One experiment, and the best of a tag."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict

from state.policy import KeepRuleName, TickSource
from state.records.base import Record
from state.records.traces import Choice

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
"""What an experiment may be, a retest aside."""


OPEN: frozenset[Status] = frozenset({"registered", "queued", "leased", "running"})


Trust = Literal["first", "provisional", "unconfirmed", "confirmed", "demoted"]
"""Evidence for a keep. `first`: the first run under its comparability key had nothing to be compared with.

The others are of the rule `confirmed`. `provisional`: it waits for a retest. `unconfirmed`: nobody can run it again.
`confirmed`: retests agree, or its lead exceeds the noise. `demoted`: retests disagree, and it is a discard now."""


Score = Literal["reported", "trusted"]
"""Whose number a value is: printed by the code that was scored, or measured by the tag's evaluator, in whose process
none of that code runs."""


class TimeSpent(BaseModel):
    """How long a run trained, without its scoring."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    wall_seconds: float
    cpu_seconds: float | None = None
    """Of all its processes; None: it was not measured."""


class ReferenceTime(TimeSpent):
    """The time that runs of one GPU class are compared with."""

    experiment_id: str
    budget_s: float | None = None
    baseline: bool = False
    """It is the time of the tag's baseline."""


class Mention(Record):
    """What a suggestion says of an experiment's code."""

    experiment_id: str
    category: str
    diff_summary: str


class Measured(Record):
    """A value, and what it counts as."""

    val_bpb: float | None = None
    """The tag's metric, whatever its name, as measured."""
    judged_val_bpb: float | None = None
    """The mean of all runs of its code, by which it was judged; None: it was the first of them."""
    delta_bpb: float | None = None
    """Of a swarm's run: its value less its worker's baseline, by which it is judged in a tag that compares deltas."""
    score: Score | None = None
    """Whose number `val_bpb` is: train.py printed it, or the tag's trusted evaluator measured it. None: no value."""
    reported: float | None = None
    """What train.py printed, where `val_bpb` is trusted; of a claim that the lab has run: what its agent said."""

    over_budget: bool = False
    """It trained for longer than its budget, beside the baseline: its value is compared with nothing."""
    trust: Trust | None = None
    """Evidence for its keep."""
    claimed: bool = False
    """Its agent measured it, in a tag that the lab measures."""
    measured_by: str | None = None
    """Of a claim: the run by which the lab has measured it; `val_bpb` is that run's value then."""

    @property
    def is_claim(self) -> bool:
        """Only its agent says what it measured: the lab has not run it."""
        return self.claimed and self.measured_by is None

    @property
    def judged(self) -> float | None:
        """What it is compared by."""
        return self.own_value if self.judged_val_bpb is None else self.judged_val_bpb

    @property
    def own_value(self) -> float | None:
        """What this one run is compared by, whatever other runs of its code have measured."""
        if self.over_budget:
            return None
        return self.val_bpb if self.delta_bpb is None else self.delta_bpb


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


class Sketch(Mention, OneRun):
    """An experiment in a few words, for lists and suggestions."""

    FOR_AGENTS: ClassVar[tuple[str, ...]] = (
        *("experiment_id", "status", "val_bpb", "delta_bpb", "reported", "trust", "claimed", "over_budget"),
        *("category", "description", "agent", "commit_sha", "error_kind", "error"),
    )
    """What agents use of an experiment: the lists of report::brief and of the MCP tools show these fields alone."""

    number: int
    status: Status
    description: str
    commit_sha: str
    agent: str | None = None
    retest_of: str | None = None
    """A retest: the experiment whose code it runs again; None for an experiment of its own."""
    last_progress: float | None = None
    error: str | None = None
    error_kind: str | None = None


class Result(OneRun):
    """How an experiment ended, for plots and statistics."""

    experiment_id: str
    status: Status
    category: str
    description: str
    p_better: float | None = None
    finished_at: float | None = None
    finish_number: int | None = None


class Keep(Result):
    """A keep, and what it was made from."""

    number: int
    agent: str | None = None
    diff_id: str | None = None
    baseline: bool = False
    compared_with: str | None = None
    selection: Choice | None = None

    @property
    def made_from(self) -> str | None:
        """The keep whose code it changed: its branch's base, else the best that it was compared with."""
        base = self.selection.base_experiment_id if self.selection else None
        return base or self.compared_with


class Failure(Record):
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
    parent_ids: list[str] = []
    agent: str | None = None
    seed: int | None = None
    config_delta: dict[str, Any] | None = None
    trace_id: str | None = None
    """The branch that it was made for; None: no trace's."""
    selection_id: str | None = None
    local_selection: list[int] | None = None
    """Its parents' numbers; empty is a new root, None is no selection."""
    selection: Choice | None = None
    policy_version: int = 0
    keep_rule: KeepRuleName = "auto"
    """Its tag's rule when it came in; once it is judged, the rule that it was judged by."""
    patience_s: float = 1800.0
    """Seconds without a word from its agent after which a registered experiment is lost."""
    pinned_gpu: str | None = None
    traceparent: str | None = None

    @property
    def is_unpatched(self) -> bool:
        """No patch was sent with it, or an empty one."""
        return self.diff_id in _UNPATCHED


class Trial(Idea, Sketch):
    """One try: its idea, its attempts, its outcome."""

    baseline: bool = False
    """The tag's baseline. Its status is `keep` for any value, and no keep rate counts it."""
    duplicate_of: str | None = None
    """The first experiment of its tag with the same patch or commit."""
    tree_id: str | None = None
    """What all code has in common whose files are the same once its constants are set, the seed aside; known once a
    worker has checked it out."""
    diff_differs: bool = False
    """The patch that was sent makes other files than the commit, which was trained and whose own patch is kept."""
    sent_diff_id: str | None = None
    """SHA-256 of the patch that was sent, where it differs."""
    retests: int = 0
    """Retests that were begun: `<id>.2` is its second run, and so on."""
    committed: bool = False
    """It is a node of its trace."""
    forked: bool = False
    """Its parent was no longer its trace's tip when it came in: a leaf beside the branch."""
    outdated: bool = False
    """It was selected in an earlier epoch than it came in: it is never a parent."""
    branch_improved: bool | None = None
    """Whether it beats its branch's base."""
    best_key: str | None = None
    """Comparability key that it was judged under, where that is not the tag's main one."""

    attempt: int = 0
    """0 while nothing was queued; agents that train themselves stay there."""
    fence: int = 0
    """Fence of the newest lease; 0 without one."""
    gpu_id: str | None = None
    priority: int = 0
    queue_round: int | None = None
    """The round of its agent that it waits in, until it had its turn; see `functions.rules.pool.lending`."""
    budget_s: float | None = None
    timeout_s: float | None = None
    reserved_gpu_seconds: float | None = None
    """Set aside for it from the tag's budget while it is open."""
    stopping: bool = False
    stop_reason: str | None = None
    extended_s: float | None = None
    """Seconds that it was given beyond its budget, for its rank."""
    used_extension: bool = False
    """Whether it has reported beyond its budget then: it counts as extended."""
    base_metric: float | None = None
    """Of an extended run: what it reported nearest to the end of its budget, which is at `base_progress`."""
    base_progress: float | None = None
    told: dict[str, str] | None = None
    """What its runs were told at their buckets, by `<attempt>:<bucket>`: continue, stop or extend."""

    ranked: dict[str, tuple[float, float]] | None = None
    """Its rank at its buckets, 0 (worst) to 100, and the probability with which it had to stop there."""
    places: dict[str, float] | None = None
    """Its places at its buckets, those that were stopped before included: normal scores, see
    `functions/rules/stopping/trends.py`."""
    end_place: float | None = None
    """Its place among the ends of its class of GPU, likewise; None: it has none, or was ranked nowhere."""
    rank_class: str | None = None
    """The class of GPU that its places are of, with the source of its ticks where that is its output."""

    worker_id: str | None = None
    """A swarm's run: the worker that it was handed out to."""
    gpu_type: str | None = None
    """That worker's GPU."""
    baseline_bpb: float | None = None
    """What that worker measured of its unchanged train.py, when this was handed out."""
    fingerprint: str | None = None
    """Of its constants: equal configs have the same."""
    population_id: str | None = None
    population_strategy: str | None = None
    proposal_priority: float | None = None
    """0 to 1, as its worker was told."""
    is_compared: bool = False
    """It is compared with another run for a claim: it is never stopped for its rank."""
    is_reference: bool = False
    """It was handed out as a run of its claim's reference config: others are compared with it."""
    is_extra: bool = False
    """Its worker chose the config itself."""
    handed_out: int = 0
    """How often that worker was given it: 2 where it asked again without a result."""
    sent_delta_bpb: float | None = None
    """The delta that the worker computed itself; only kept."""
    late_val_bpb: float | None = None
    """What its worker measured after it was stopped; judged by nothing."""

    finish_number: int | None = None
    last_metric: float | None = None
    tick_source: TickSource = "report"
    """Where `last_metric` comes from: report, the script's own; stdout, a loss that it has printed."""

    peak_vram_mb: float | None = None
    training_seconds: float | None = None
    wall_seconds: float | None = None
    """How long it trained, by the clock of its worker, without its scoring."""
    cpu_seconds: float | None = None
    """CPU seconds of all its processes in that time."""
    hung: bool = False
    """It hung after it had printed its result, and its worker ended it: its times end with that result."""
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
    compared_with: str | None = None
    """The best that it was compared with."""
    repeats_best: bool = False
    """It has the code of that best."""
    near_miss: bool | None = None
    base_commit_sha: str | None = None
    retracted_from: Literal["keep", "discard"] | None = None
    """What it was before its result was taken back."""
    retracted_because: str | None = None


NO_CHANGE = b""
"""The patch of the base commit's own code."""
_UNPATCHED = (None, sha256(NO_CHANGE).hexdigest())


class Experiment(Trial):
    """One try, with its times in seconds of Redis' clock."""

    @property
    def was_trained_here(self) -> bool:
        """A worker trained it, so a worker can train it again."""
        return self.attempt > 0 or self.measured_by is not None

    @property
    def can_run_again(self) -> bool:
        """Somebody else than its agent can run it again: a worker of the lab, or of its swarm."""
        return self.was_trained_here or self.worker_id is not None

    @property
    def judged_by(self) -> Literal["strict", "confirmed"]:
        """Keep rule of its verdict."""
        if self.keep_rule == "auto":
            return "confirmed" if self.can_run_again else "strict"
        return self.keep_rule

    @property
    def is_evidence(self) -> bool:
        """A retest whose value counts."""
        return self.status == RETESTED and self.val_bpb is not None and not self.claimed

    @property
    def time_classes(self) -> tuple[str, str]:
        """Names of the times that it is compared with: the baseline's on its class of GPU, then the first run's with
        its budget."""
        gpu = self.gpu_type or self.gpu_class
        return f"{gpu}|", f"{gpu}|{self.budget_s!r}"

    def told_at(self, bucket: float) -> str | None:
        """What its newest attempt was told at this bucket; None: it has not reached it."""
        return (self.told or {}).get(f"{self.attempt}:{bucket!r}")

    branches: int = 0
    """Traces that began on it, as their base."""
    registered_at: float
    queued_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None


@dataclass(frozen=True)
class End:
    """How an experiment ended."""

    status: Status
    error_kind: str | None = None
    baseline: bool = False
    category: str = "other"
    merges: bool = False
    """It was made from several."""


class Link(BaseModel):
    """An experiment with the value that it was chosen by."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    experiment_id: str
    val_bpb: float
    commit_sha: str
    code: str | None = None
    """By which its runs are known among the noise; see `state.codes.code_of`."""
    trace_id: str | None = None
    """The branch that it was made for."""


class Seeds(BaseModel):
    """What code that ran on the first and on the second fixed seed says of the seeds; scores, lower is better.

    A pair is one code's score on the second seed less that on the first.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    pairs: int = 0
    total: float = 0.0
    """The sum of the pairs, and of their squares."""
    squares: float = 0.0
    kept: int = 0
    """Pairs of code that was kept for good, and their sum: no lucky first run has picked so many of these."""
    kept_total: float = 0.0
    bar: float | None = None
    """What both runs of the incumbent bear out on the first seed; None while that is not known."""


class Best(Record):
    """The lowest (or highest) value kept under one comparability key."""

    experiment_id: str
    val_bpb: float
    commit_sha: str
    code: str | None = None
    """Of its code among the noise, and the branch that it was made for, as in `Link`."""
    trace_id: str | None = None
    updated_at: float
    version: int = 0
    chain: list[Link] = []
    """Under the rule `confirmed`: the incumbent that can be trusted, then every keep on top of it that waits for its
    retests; the last one is this best. Empty under the strict rule."""
    rivals: list[Link] = []
    """Discards that were judged by the value of a keep in the chain and are better than its incumbent, best first."""
    seeds: Seeds = Seeds()
    """Learned from every keep that was judged; forgotten when a result that it may hold is taken back."""

    def standing(self) -> list[Link]:
        """The chain; of one link where the rule is strict."""
        return self.chain or [Link.model_validate(self, from_attributes=True)]
