"""Searches that have proposed dimensions, as rules are handed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functions.experiments.rules.opening import swarm_policy, swarm_tag
from functions.swarm.rules.trial_verdicts import Repeated
from functions.swarm.rules.trials import followed
from state.policy import Policy
from state.records import Best, Dimension, ProposedDimension
from state.swarm_facts import EndedResult, Following, KeptRun, TrialFacts, TriedRun

LR = Dimension(name="LR", dtype="float_log", min=1e-4, max=1e-1)
DEPTH = Dimension(name="DEPTH", dtype="int", min=4, max=24)
ON_TRIAL = {"is_canary": True, "canary_prob": 0.12}
WARMUP = Dimension(name="WARMUP", dtype="float", min=0.0, max=0.5, default_value=0.0).model_copy(
    update=ON_TRIAL
)
GATE = Dimension(name="GATE", dtype="categorical", categories=["none", "silu", "gelu"], default_value="none")
GATE = GATE.model_copy(update=ON_TRIAL)
BEST = {"LR": 0.003, "DEPTH": 12}


def proposed(name: str = "WARMUP", **fields: Any) -> ProposedDimension:
    usual = {"dtype": "float", "min": 0.0, "max": 0.5, "default_value": 0.0}
    who = {"proposal_id": "", "source": "agent", "proposed_by": "ada", "proposed_at": 1.0}
    if fields.get("dtype") == "categorical":
        usual = {"default_value": "none"}
    return ProposedDimension.model_validate({"name": name, **who, **usual, **fields})


AT = {"adopted_at": 100.0, "adopted_results": 100, "adopted_number": 100}
ADOPTED = AT | {"state": "on_trial", "best_before": -0.05, "cycles": [1, 2]}


def kept(at: float, delta: float, number: int = 1, **fields: Any) -> KeptRun:
    told = {"val_bpb": 1 + delta, "delta_bpb": delta, "finished_at": at, "number": number}
    return KeptRun.model_validate({"experiment_id": f"swarm-{number}", **told, **fields})


def searched(results: int, *keeps: KeptRun, **changes: Any) -> TrialFacts:
    """A swarm with a result a second, the newest at `results`."""
    by_value = sorted(keeps, key=lambda k: k.judged or 0.0)
    best = by_value[0] if by_value else None
    counts = {"discarded": results, "last_number": results, "finishes": results}
    plain: dict[str, Any] = {"commit_sha": "abc1234", "updated_at": 0.0}
    facts: dict[str, Any] = {"now": float(results), "tag": swarm_tag("swarm").model_copy(update=counts)}
    facts |= {"policy": swarm_policy(Policy()), "dimensions": [LR, DEPTH], "keeps": by_value, "proposals": []}
    facts |= {"best": best and Best(experiment_id=best.experiment_id, val_bpb=best.judged or 0.0, **plain)}
    facts["ended"] = [
        EndedResult(experiment_id=f"swarm-{n}", status="discard", finished_at=float(n))
        for n in range(results, max(0, results - 100), -1)
    ]
    return TrialFacts(**facts | {"cycle": 0, "cycle_at": 0, "asked": 0} | changes)


STALLED = searched(100, kept(5, -0.05))


def trial(name: str = "WARMUP", **changes: Any) -> ProposedDimension:
    return proposed(name).model_copy(update={**ADOPTED, "proposal_id": name, **changes})


def after(facts: TrialFacts, ran: Sequence[TriedRun] = (), repeated: Repeated | None = None) -> Following:
    found = followed(facts, ran, repeated or {})
    assert found is not None
    return found


def ran(varied: int, others: int = 0, status: str = "discard") -> list[TriedRun]:
    configs = [{"WARMUP": 0.2}] * varied + [{}] * others
    rows = [
        {"experiment_id": f"swarm-{n}", "number": n, "status": status, "config_delta": config}
        for n, config in enumerate(configs, 101)
    ]
    return [TriedRun.model_validate(row) for row in rows]


def on_trial(results: int, *keeps: KeptRun, **changes: Any) -> TrialFacts:
    """A swarm whose trial began after 100 results; no dimensions are asked for."""
    known = {"proposals": [trial()], "dimensions": [LR, DEPTH, WARMUP], "asked": 99} | changes
    at = {"cycle": 99, "cycle_at": results}
    return searched(results, kept(5, -0.05), *keeps, **at, **known)
