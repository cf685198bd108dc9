"""hypothesis::learn has a run that has ended count for the hypotheses that it bears on."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, On, Response, function
from functions.rules.beliefs.concluding import concerned, finished_run, learned
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
    """Those that it said something of; empty where it was learned from before, or says nothing."""


@function("hypothesis::learn", On("experiment.finished", "experiment.retested"), role="operator", writes=True)
async def learn(request: Learn, hypotheses: Hypotheses, settings: Settings) -> Learned:
    """Move the beliefs that a run bears on, and share the workers out anew where it is time; once for each run."""
    batch_every = settings.pipeline_batch_every if settings.pipeline_enabled else None
    while True:
        facts = await hypotheses.learning_facts(request.experiment_id, request.tag)
        if facts.is_learned or not facts.has_beliefs:
            return Learned(experiment_id=request.experiment_id, hypotheses=[])
        run = finished_run(facts.run, facts)
        kept = await hypotheses.kept(request.tag, concerned(run, facts))
        learning = learned(run, facts, kept)
        if await hypotheses.learn(facts, learning, batch_every) != "stale":
            return Learned(experiment_id=request.experiment_id, hypotheses=[*learning.changed])
