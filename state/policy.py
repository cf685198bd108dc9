"""Research policy: every threshold of a tag's research, with its default; values only, no IO."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from state.errors import Invalid

DEEPEST = 8
"""Dots that a name may have; the deepest value lies under one."""

PROPOSED = {
    "enable_parallel_multi_trace": "traces.mode",
    "max_traces": "traces.target_traces",
    "max_parallel": "traces.max_parallel",
}
"""Names that the proposal of traces gave to values of ours."""


class Part(BaseModel):
    """A group of policy values: unknown names, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Rate(Part):
    per_second: float = Field(default=50, gt=0)
    burst: int = Field(default=200, ge=1)


class Adapt(Part):
    min_finished: int = Field(default=5, ge=0)
    window: int = Field(default=10, ge=1, le=1000)
    crash_rate: float = Field(default=0.5, ge=0, le=1)
    keep_rate: float = Field(default=0.3, ge=0, le=1)
    plateau_after: int = Field(default=20, ge=0)


class TracePolicy(Part):
    mode: Literal["single", "multi"] = "single"
    target_traces: int = Field(default=3, ge=1, le=10_000)
    max_parallel: int | None = Field(
        default=None, ge=1, le=1_000_000, description="default: the GPUs that are live"
    )
    max_inflight_per_trace: int = Field(default=1, ge=1, le=1_000_000)
    scheduler: str = "round_robin"
    scheduler_params: dict[str, float] = {}
    lease_ttl_s: float = Field(default=900, gt=0, le=7 * 86400)
    dead_after_crashes: int = Field(default=3, ge=1, le=1_000_000)
    stale_after: int = Field(default=30, ge=1, le=1_000_000)


class Stopping(Part):
    rule: Literal["none", "stochastic", "adaptive", "asha", "median"] = "none"
    eta: float = Field(default=3, gt=1)
    max_prob: float = Field(default=0.65, ge=0, le=1)
    warmup_runs: int = Field(default=25, ge=0)
    min_peers: int = Field(default=5, ge=1)
    tick_source: Literal["report", "stdout"] = "report"


class Budgets(Part):
    base_s: float = Field(default=300, gt=0, le=7 * 86400)
    extend_s: float = Field(default=120, ge=0)
    min_s: float = Field(default=180, ge=0)


class Duplicates(Part):
    max_trials: int = Field(default=6, ge=1)
    max_inflight: int = Field(default=2, ge=1)


class Belief(Part):
    support_at: tuple[float, float] = (0.60, 0.40)
    support_mass: float = Field(default=0.90, gt=0, lt=1)
    min_n: int = Field(default=10, ge=1)
    archive_n: int = Field(default=12, ge=1)
    e_value: float = Field(default=20, gt=1)


class Allocation(Part):
    temperature: float = Field(default=1, gt=0)
    min_workers: int = Field(default=3, ge=0)
    llm_min_workers: int = Field(default=1, ge=0)
    moonshot_share: float = Field(default=0.05, ge=0, le=1)
    converge_share: float = Field(default=0.70, ge=0, le=1)


class Indecision(Part):
    band: tuple[float, float] = (0.45, 0.55)
    streak: int = Field(default=20, ge=1)
    sprint: int = Field(default=12, ge=1)
    cooldown: int = Field(default=30, ge=0)
    penalty: float = Field(default=0.5, ge=0, le=1)


class Proposals(Part):
    importance_min: float = Field(default=0.15, ge=0, le=1)
    similarity_max: float | None = Field(default=None, ge=0, le=1)
    stall_window: int = Field(default=50, ge=1)
    stall_gain: float = Field(default=0.0005, ge=0)


class Canary(Part):
    probability: float = Field(default=0.12, ge=0, le=1)
    importance: float = Field(default=0.08, ge=0, le=1)
    after: int = Field(default=40, ge=1)
    gain: float = Field(default=0.001, ge=0)


class Program(Part):
    every: int = Field(default=50, ge=1)
    journal_every: int = Field(default=100, ge=1)


class Pipeline(Part):
    enabled: bool = False


class Policy(Part):
    """Every threshold of a tag's research, with its default."""

    near_miss_margin: float = Field(default=0.002, ge=0)
    crash_limit: int = Field(default=3, ge=1)
    on_abort: Literal["advise", "block"] = "advise"
    keep_rule: Literal["strict", "confirmed"] = Field(
        default="strict", description="a lower value is kept; confirmed: and run again on another seed"
    )
    max_retests: int = Field(default=2, ge=0, le=20)
    retest_top_k: int = Field(default=4, ge=1, le=20)
    rate_limit: Rate = Rate()
    max_attempts: int = Field(default=2, ge=1, le=20)
    stale_after_s: float = Field(default=1800, gt=0)
    adapt: Adapt = Adapt()
    strategy_pin: int = Field(default=5, ge=0)
    compare_by: Literal["value", "delta"] = "value"
    traces: TracePolicy = TracePolicy()
    stopping: Stopping = Stopping()
    budgets: Budgets = Budgets()
    sampler: str = "thompson"
    duplicates: Duplicates = Duplicates()
    queue_target: int | None = Field(default=None, ge=1, description="default: max(50, 2 x active workers)")
    evidence: Literal["matched", "baseline"] = "matched"
    dead_zone: float = Field(default=0, ge=0)
    belief: Belief = Belief()
    equivalence_margin: float = Field(default=1, gt=0)
    allocation: Allocation = Allocation()
    indecision: Indecision = Indecision()
    protocol_decision: Literal["threshold", "significant"] = "threshold"
    proposals: Proposals = Proposals()
    canary: Canary = Canary()
    program: Program = Program()
    pipeline: Pipeline = Pipeline()

    def changed(self, changes: dict[str, Any]) -> Policy:
        """This policy with some values replaced, nested or dotted names.

        Where the traces' scheduler or its parameters are named, those not named are at their defaults again: another
        scheduler does not know the old ones.

        Raises:
            Invalid: an unknown name or a value out of its range.
        """
        now, named = self.model_dump(mode="json"), nested(own_names(changes))
        traces = named.get("traces")
        if isinstance(traces, dict) and {"scheduler", "scheduler_params"} & traces.keys():
            now["traces"]["scheduler_params"] = {}
        return validated(merged(now, named))


@lru_cache(maxsize=1024)
def read_policy(stored: str) -> Policy:
    """A policy as the lab keeps it; the same text gives the same value."""
    return Policy.model_validate_json(stored)


def validated(values: dict[str, Any]) -> Policy:
    """A policy from plain values.

    Raises:
        Invalid: an unknown name or a value out of its range.
    """
    try:
        # As JSON, because a strict tuple is a list there.
        return Policy.model_validate_json(json.dumps(values), strict=True)
    except ValidationError as problem:
        errors = [
            {"field": ".".join(("policy", *(str(p) for p in e["loc"]))), "problem": e["msg"]}
            for e in problem.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise Invalid(
            "; ".join(f"{e['field']}: {e['problem']}" for e in errors[:3]),
            hint="POST /api/search/policy shows every name with its value",
            fields={"errors": errors},
        ) from problem


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
