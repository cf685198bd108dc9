"""experiment::best names the experiment to beat."""

from __future__ import annotations

from typing import Any

from functions.contract import Request, Response, function
from functions.views.experiments import ExperimentView, claim_of, view
from state.experiments import Experiments
from state.ids import Tag
from state.records import stamp


class ReadBest(Request):
    tag: Tag


class Incumbent(Response):
    FOR_AGENTS = ("best",)

    best: dict[str, Any]
    experiment: ExperimentView
    key: dict[str, Any]


@function("experiment::best", role="viewer")
async def best(request: ReadBest, experiments: Experiments) -> Incumbent:
    """The best experiment of a tag under its main comparability key."""
    facts = await experiments.best_facts(request.tag)
    tag, found, e = facts.tag, facts.best, facts.runs.experiment
    return Incumbent(
        best={
            "experiment_id": found.experiment_id,
            "val_bpb": found.val_bpb if e.delta_bpb is None else e.val_bpb,
            **({} if e.delta_bpb is None else {"delta_bpb": found.val_bpb}),
            "commit_sha": found.commit_sha,
            "commit": found.commit_sha,
            "updated_at": stamp(found.updated_at),
            "trust": e.trust,
            **claim_of(facts.runs, facts.noise).model_dump(),
        },
        experiment=view(e),
        key={
            "gpu_class": tag.key_gpu_class,
            "evaluator_hash": tag.key_evaluator_hash,
            "budget_seconds": tag.key_budget_seconds,
        },
    )
