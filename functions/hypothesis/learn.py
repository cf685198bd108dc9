"""hypothesis::learn counts a finished run as evidence for the hypotheses that it bears on."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, On, Response, function
from functions.rules.beliefs.concluding import concerned, finished_run, learned
from state.change import Change
from state.hypotheses import Hypotheses
from state.ids import ExperimentId
from state.ids import Tag as TagName
from state.settings import Settings


class Learn(Command):
    tag: TagName
    experiment_id: ExperimentId = Field(description="the run", examples=["swarm-17"])


class Learned(Response):
    experiment_id: str
    hypotheses: list[str]
    """Ids of the changed hypotheses; empty if the run was counted before, or is no evidence."""


@function("hypothesis::learn", On("experiment.finished", "experiment.retested"), role="operator", writes=True)
async def learn(request: Learn, hypotheses: Hypotheses, settings: Settings) -> Learned:
    """Update the beliefs that a run bears on, and reallocate workers when it is time; once for each run."""
    batch_every = settings.pipeline_batch_every if settings.pipeline_enabled else None

    async def decide(change: Change) -> Learned:
        facts = await hypotheses.learning_facts(change, request.experiment_id, request.tag)
        if facts.is_learned or not facts.has_beliefs:
            return change.idle(Learned(experiment_id=request.experiment_id, hypotheses=[]))
        run = finished_run(facts.run, facts)
        kept = await hypotheses.kept(request.tag, concerned(run, facts))
        learning = learned(run, facts, kept)
        hypotheses.learn(change, facts, learning, batch_every)
        return Learned(experiment_id=request.experiment_id, hypotheses=[*learning.changed])

    return await hypotheses.change(decide, in_turn=request.tag)
