"""experiment::retract takes a result back."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.experiment._judging import Judging, bases_without, stop_retests
from functions.experiment._reports import statistics_loaded
from functions.rules.access import check_retractor
from functions.rules.keeps.retracting import RetractAnswer, check_retractable, retraction_of, with_growths
from state.decisions import Retraction
from state.digests import digest_of
from state.experiments import Experiments, Window
from state.ids import ExperimentId
from state.records import Experiment

NODES_READ = 1000
"""Most nodes of a trace that are read to score it anew."""


class Retract(Command):
    experiment_id: ExperimentId
    reason: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        description="why its result does not count", examples=["it was measured on the training data"]
    )


class Retracted(Response, RetractAnswer):
    replayed: bool = False
    """Whether this very request was answered before: then this is the first answer once more."""


@function("experiment::retract", role="agent", writes=True)
async def retract(request: Retract, call: Call, judging: Judging) -> Retracted:
    """Take a result back: best, near misses, noise, counters and branches are as if it had not been there."""
    experiments, digest = judging.experiments, digest_of(request)
    while True:
        e, said = await experiments.retracted(request.experiment_id)
        check_retractor(call.caller, e)
        if said is not None and said["digest"] == digest:
            await stop_retests(e, experiments)
            return Retracted(**said["answer"], replayed=True)
        check_retractable(e)
        facts = await experiments.retraction_facts(e)
        if facts.experiment != e:
            continue  # its retests have changed what it is
        await statistics_loaded(facts.noise)
        retraction = await _grown(retraction_of(facts, request.reason, digest), judging)
        if await experiments.retract(retraction):
            await stop_retests(e, experiments)
            return Retracted(**retraction.fields["retraction"]["answer"])


async def _grown(retraction: Retraction, judging: Judging) -> Retraction:
    """The retraction with its changes of traces."""
    e, traces = retraction.facts.experiment, judging.traces
    scored = [e, *(now for _, now in retraction.changed)]
    names = list(dict.fromkeys(run.trace_id for run in scored if run.trace_id))
    own, standing, epoch = await asyncio.gather(
        traces.many(names), traces.standing_on(e.tag, e.experiment_id), traces.epoch(e.tag)
    )
    nodes = {t.trace_id: await _nodes(e.tag, t.trace_id, judging.experiments) for t in own}
    found = {t.trace_id: t for t in (*standing, *own)}
    bases = await bases_without(e, found.values(), retraction.facts.tag, judging.experiments)
    return with_growths(retraction, found.values(), nodes, bases, epoch)


async def _nodes(tag: str, trace_id: str, experiments: Experiments) -> list[Experiment]:
    """The newest NODES_READ nodes of a trace, oldest first."""
    return (await experiments.page(Window(tag, NODES_READ, trace_id=trace_id))).experiments
