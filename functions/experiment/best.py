"""experiment::best names the experiment to beat."""

from __future__ import annotations

from typing import Any

from functions.contract import Request, Response, function
from functions.rules.keeps.noise import noise_of
from functions.views.claims import claim_view
from functions.views.experiments import View, view
from state.errors import NotFound
from state.experiments import Experiments
from state.ids import Tag
from state.noise import Noises
from state.records import stamp
from state.tags import Tags


class Ask(Request):
    tag: Tag


class Incumbent(Response):
    best: dict[str, Any]
    experiment: View
    key: dict[str, Any]


@function("experiment::best", role="viewer")
async def best(request: Ask, tags: Tags, experiments: Experiments, noises: Noises) -> Incumbent:
    """The best experiment of a tag under its main comparability key."""
    tag = await tags.get(request.tag)
    found = await experiments.best(request.tag)
    if found is None:
        raise NotFound(
            f"{request.tag!r} has no finished experiment yet",
            hint="run the unchanged train.py first: it is the baseline",
        )
    experiment = await experiments.get(found.experiment_id)
    [retests] = await experiments.retests([experiment])
    spread = await noises.spread(request.tag, experiment.gpu_class)
    claim = claim_view(retests, noise_of(spread.squares, spread.df))
    return Incumbent(
        best={
            "experiment_id": found.experiment_id,
            "val_bpb": found.val_bpb,
            "commit_sha": found.commit_sha,
            "updated_at": stamp(found.updated_at),
            "trust": experiment.trust,
            **claim.model_dump(),
        },
        experiment=view(experiment),
        key={
            "gpu_class": tag.key_gpu_class,
            "evaluator_hash": tag.key_evaluator_hash,
            "budget_seconds": tag.key_budget_seconds,
        },
    )
