"""Research policy of a tag: its values, ranges and defaults. docs/defaults.md shows all of them."""

from __future__ import annotations

import json
import shlex
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from state.errors import Invalid, by_problem

DEEPEST = 8
"""Dots that a name may have; the deepest value lies under one."""

PROPOSED = {
    "enable_parallel_multi_trace": "traces.mode",
    "max_traces": "traces.target_traces",
    "max_parallel": "traces.max_parallel",
}
"""Names that the proposal of traces gave to values of ours."""

YIELD_ENDS = 60
"""Newest finished experiments from which the rule `yields` learns."""
WINDOW = 10
"""Newest finished experiments that the published rule looks at."""
KeepRuleName = Literal["auto", "strict", "confirmed"]
StoppingRule = Literal["none", "stochastic", "median", "asha", "adaptive"]
TickSource = Literal["report", "stdout"]
"""Where the ticks of a run come from: its script calls report(), or its worker reads the script's output."""
LONGEST_EXTENSION_S = 600.0
FIFTHS = (0.2, 0.4, 0.6, 0.8, 1.0)
EARLY = 0.1
"""A further bucket, of the rule `adaptive` alone."""
BUCKETS = (EARLY, *FIFTHS)
"""Shares of a run at which its value is compared with those of other runs."""


class PolicyGroup(BaseModel):
    """A group of policy values: unknown names, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")

    @classmethod
    def group(cls, name: str) -> type[PolicyGroup] | None:
        """The group of values that this name stands for; None where it is one value."""
        found = cls.model_fields[name].annotation
        return found if isinstance(found, type) and issubclass(found, PolicyGroup) else None


class Adapt(PolicyGroup):
    """How search::adapt chooses a mode."""

    rule: Literal["published", "yields"] = Field(
        default="published",
        description="published: by the rates of crashes and keeps; yields: by how often each mode was kept"
        " lately, and so for the category to explore",
    )

    @property
    def ends_read(self) -> int:
        """Newest finished experiments that its rule looks at; older ones hardly count to `yields`."""
        return YIELD_ENDS if self.rule == "yields" else WINDOW


class TracePolicy(PolicyGroup):
    """How many branches grow, and which one is selected."""

    mode: Literal["single", "multi"] = Field(default="single", description="one trace, or several")
    target_traces: int = Field(default=3, ge=1, le=10_000, description="traces that grow at once")
    max_parallel: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="selections that are open at once; default: the GPUs that are live",
    )
    max_inflight_per_trace: int = Field(
        default=1, ge=1, le=1_000_000, description="selections that are open at once in one trace"
    )
    scheduler: str = Field(
        default="round_robin",
        description="round_robin, priority, weighted, softmax, uct, or package.module:Class of a plug-in",
    )
    scheduler_params: dict[str, float] = Field(default={}, description="the scheduler's own values")
    lease_ttl_s: float = Field(
        default=900, gt=0, le=7 * 86400, description="seconds after which a selection expires"
    )
    dead_after_crashes: int = Field(
        default=3, ge=1, le=1_000_000, description="crashes in a row that end a trace"
    )
    stale_after: int = Field(
        default=30, ge=1, le=1_000_000, description="experiments without a new best of the trace that end it"
    )


class Budgets(PolicyGroup):
    """How long runs train."""

    base_s: float = Field(default=300, gt=0, le=7 * 86400, description="seconds, where a run names no other")
    max_timeout_s: float | None = Field(
        default=None,
        gt=0,
        le=7 * 86400,
        description="most seconds that a run may be given or ask for; default: 2 x base_s + 60",
    )

    overrun: float = Field(
        default=1.25,
        ge=1,
        le=100,
        description="a run that trains for more than so many times the baseline's time, and 10 s more, is never kept",
    )
    extend_s: float = Field(
        default=120,
        ge=0,
        le=LONGEST_EXTENSION_S,
        description="seconds that the best runs get beyond their budget, once, at stopping.extend_at; 0: none. It"
        " needs a stopping.rule",
    )

    @model_validator(mode="after")
    def _holds_the_base(self) -> Budgets:
        if self.max_timeout_s is not None and self.max_timeout_s < self.base_s:
            raise ValueError(f"max_timeout_s {self.max_timeout_s:g} is below base_s {self.base_s:g}")
        return self


class Patches(PolicyGroup):
    """How long patches stay in Redis."""

    archive_after_days: float | None = Field(
        default=None,
        ge=0,
        le=36500,
        description="days after its end in which the patch of a run that was not kept stays in Redis; then it moves"
        " to the lab's archive (NIGHTJAR_ARCHIVE) and is read from there; default: it stays",
    )


class Stopping(PolicyGroup):
    """Which runs are stopped or extended on their way, by their rank among the runs of their tag."""

    rule: StoppingRule = Field(
        default="none",
        description="none; stochastic: the worst runs, with a probability; median: what is worse than half of the"
        " runs; asha: all but the best 1 / eta, twice; adaptive: the more, the better reports foretell how runs end",
    )
    eta: float = Field(
        default=3,
        ge=1.5,
        le=10,
        description="stochastic stops runs below the percentile 100 / eta, adaptive too while it knows no better;"
        " asha lets 1 / eta of the runs go on",
    )
    max_prob: float = Field(
        default=0.65, ge=0, le=1, description="probability with which stochastic stops the worst run"
    )
    warmup_runs: int = Field(
        default=25, ge=0, le=1_000_000, description="finished runs of the tag before which no run is stopped"
    )
    min_peers: int = Field(
        default=5,
        ge=1,
        le=1_000_000,
        description="other runs at the same point without which no run is stopped",
    )
    extend_at: float | None = Field(
        default=None,
        description="share of a run at which the best 11 % are given budgets.extend_s more: 0.2, 0.4, 0.6, 0.8 or 1;"
        " default: no run is extended",
    )

    tick_source: TickSource = Field(
        default="report",
        description="report: what train.py reports; stdout: the loss in the progress line that it prints,"
        " `step 00123 (12.3%) | loss: 2.34 |`, so that it needs no change",
    )

    @model_validator(mode="after")
    def _extends_at_a_bucket(self) -> Stopping:
        if self.extend_at is not None and self.extend_at not in FIFTHS:
            raise ValueError(f"extend_at {self.extend_at:g} is none of {', '.join(f'{b:g}' for b in FIFTHS)}")
        return self


class Guards(PolicyGroup):
    """What a run must not break. A run that does is a discard."""

    check: str | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        description="a command that must pass before each training, such as python -m pytest -q tests",
    )
    check_s: float = Field(default=60, gt=0, le=3600, description="seconds that it may take")
    peak_vram_mb: float | None = Field(default=None, gt=0, description="the most GPU memory of a run, in MB")
    at_most: dict[str, float] = Field(
        default={}, description="largest values of further metrics, by their names in the run's output"
    )
    at_least: dict[str, float] = Field(default={}, description="their smallest values")
    slices: tuple[str, ...] = Field(
        default=(),
        max_length=50,
        description="metrics that may not get worse than the best's by more than the noise, in the tag's direction",
    )

    @model_validator(mode="after")
    def _is_a_command(self) -> Guards:
        if self.check is not None and not shlex.split(self.check):
            raise ValueError("the check is empty")
        return self


NO_GUARDS = Guards()


class Duplicates(PolicyGroup):
    """How often a swarm runs one config."""

    max_trials: int = Field(
        default=6, ge=1, le=1000, description="most runs of one config, those that wait or run included"
    )
    max_inflight: int = Field(
        default=2,
        ge=1,
        le=1000,
        description="most runs of one config that wait or run at once; not under falsify, validate and"
        " decision_sprint, whose purpose is repeats",
    )


class BeliefPolicy(PolicyGroup):
    """What counts as evidence for a swarm's hypotheses."""

    evidence: Literal["matched", "baseline"] = Field(
        default="matched",
        description="matched: a run is compared with a run of the hypothesis's reference config; baseline: with"
        " what its worker's unchanged train.py had",
    )
    reference_share: float = Field(
        default=0.5,
        gt=0,
        le=0.5,
        description="most runs of the reference config, as a share of a swarm's runs",
    )


class Allocation(PolicyGroup):
    """How a swarm's workers are shared out among its hypotheses."""

    temperature: float = Field(
        default=1, gt=0, le=100, description="the lower, the more workers the most informative hypothesis has"
    )


class Policy(PolicyGroup):
    """Every threshold of a tag's research, with its default."""

    near_miss_margin: float | None = Field(
        default=None,
        ge=0,
        description="how much worse than the best a discard may be to count as a near miss; default: 0.002, or one"
        " sigma of the difference between two runs where that is known to be larger",
    )
    crash_limit: int = Field(default=3, ge=1, description="crashes in a row that are an abort")
    on_abort: Literal["advise", "block"] = Field(
        default="advise",
        description="advise: answers say should_abort, and agents may go on; block: register and submit are refused,"
        " too. Only the unchanged best may run, and its success lifts the block",
    )
    keep_rule: KeepRuleName = Field(
        default="auto",
        description="strict: a better run is kept; confirmed: it is run again on another seed, too; auto: confirmed"
        " for runs of workers, strict for those that an agent trains itself",
    )
    compare_by: Literal["value", "delta"] = Field(
        default="value",
        description="value: a swarm's runs are judged by their values; delta: by the difference from their worker's"
        " baseline, so that different GPUs compare",
    )
    baseline_first: bool = Field(
        default=True,
        description="run the base commit's unchanged code before anything else that the lab trains",
    )
    baseline_repeats: int = Field(
        default=2, ge=0, le=3, description="further runs of the baseline on other seeds, for the noise"
    )
    max_retests: int = Field(
        default=2, ge=0, le=20, description="0: no keep is run again; otherwise each one is, once"
    )
    max_attempts: int = Field(
        default=2, ge=1, le=20, description="workers that may lose a run before it counts as lost"
    )
    stale_after_s: float = Field(
        default=1800,
        gt=0,
        description="seconds without a heartbeat, tick or wait of its agent after which an experiment is lost",
    )
    adapt: Adapt = Field(default=Adapt(), description="how the search's mode is chosen")
    traces: TracePolicy = Field(default=TracePolicy(), description="how branches grow")
    budgets: Budgets = Field(default=Budgets(), description="how long runs train")
    stopping: Stopping = Field(default=Stopping(), description="which runs are stopped on their way")
    patches: Patches = Field(default=Patches(), description="how long patches stay in Redis")
    sampler: str = Field(
        default="gaussian_process",
        pattern=r"^[A-Za-z0-9_.]{1,100}$",
        description="what proposes the configs of a swarm from the results so far",
    )
    canaries: Literal["on", "off"] = Field(
        default="on",
        description="on: a dimension that was proposed in two stalls of the search is tried in 12 % of a swarm's"
        " configs; off: it is only listed",
    )
    guards: Guards = Field(default=Guards(), description="what a run must not break")
    duplicates: Duplicates = Field(default=Duplicates(), description="how often a swarm runs one config")
    belief: BeliefPolicy = Field(default=BeliefPolicy(), description="what counts as evidence for hypotheses")
    allocation: Allocation = Field(
        default=Allocation(), description="how a swarm's workers are shared out among hypotheses"
    )
    queue_target: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="configs that wait for the workers of each population; default: the active workers, 8 to 500",
    )

    def changed(self, changes: dict[str, Any]) -> Policy:
        """This policy with some values replaced, nested or dotted names.

        Where the traces' scheduler or its parameters are named, those not named are at their defaults again: another
        scheduler does not know the old ones. Limits of guards are replaced as a whole.

        Raises:
            Invalid: an unknown name or a value out of its range.
        """
        now, named = self.model_dump(mode="json"), nested(own_names(changes))
        traces = named.get("traces")
        if isinstance(traces, dict) and {"scheduler", "scheduler_params"} & traces.keys():
            now["traces"]["scheduler_params"] = {}
        guards = named.get("guards")
        if isinstance(guards, dict):
            now["guards"] |= {name: {} for name in ("at_most", "at_least") if name in guards}
        return validated(merged(now, named))


@lru_cache(maxsize=1024)
def read_policy(stored: str) -> Policy:
    """A policy as the lab keeps it; the same text gives the same value. Names of older versions are left out."""
    return Policy.model_validate_json(stored, extra="ignore")


def validated(values: dict[str, Any]) -> Policy:
    """A policy from plain values. Raises Invalid: an unknown name or a value out of its range."""
    try:
        # As JSON, because a strict tuple is a list there.
        return Policy.model_validate_json(json.dumps(values), strict=True)
    except ValidationError as problem:
        errors = [
            {"field": ".".join(("policy", *(str(p) for p in e["loc"]))), "problem": _told(e)}
            for e in problem.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise Invalid(
            by_problem(errors[:3]),
            hint="POST /api/search/policy shows every name with its value",
            fields={"errors": errors},
        ) from problem


def _told(problem: ErrorDetails) -> str:
    """What is wrong with one value; an unknown name is told the known ones beside it."""
    if problem["type"] != "extra_forbidden":
        return problem["msg"]
    *group, _ = [str(part) for part in problem["loc"]]
    prefix = "".join(f"{part}." for part in group)
    known = [name.removeprefix(prefix) for name in names() if name.startswith(prefix)]
    return f"there is no such value, only {', '.join(known)}"


def names(part: type[PolicyGroup] = Policy, prefix: str = "") -> list[str]:
    """The dotted name of every policy value."""
    found: list[str] = []
    for name in part.model_fields:
        inner = part.group(name)
        found += names(inner, f"{prefix}{name}.") if inner else [prefix + name]
    return found


def own_names(values: dict[str, Any]) -> dict[str, Any]:
    """The values with the names that the proposal of traces gave to some of them replaced by ours."""
    own = {PROPOSED.get(name, name): value for name, value in values.items()}
    if isinstance(parallel := values.get("enable_parallel_multi_trace"), bool):
        own["traces.mode"] = "multi" if parallel else "single"
    return own


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Dotted names as nested dictionaries."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if str(name).count(".") > DEEPEST:
            raise Invalid(
                f"there is no policy value {str(name)[:100]!r}",
                hint="POST /api/search/policy shows every name with its value",
            )
        head, dot, rest = str(name).partition(".")
        plain = merged(plain, {head: nested({rest: value}) if dot else value})
    return plain


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid upon `under`, dictionary by dictionary."""
    both = dict(under)
    for name, value in over.items():
        mine = both.get(name)
        both[name] = merged(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return both
