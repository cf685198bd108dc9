"""run::tick stores a report on a swarm's run, and answers: go on, stop, or take more time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from functions.contract import Call, Http, Request, Sparse, function
from functions.rules.access import check_worker
from functions.rules.stopping.judging import REASON, checkpoint, drawn, judge, rank_of
from functions.rules.stopping.stoppers import looks_at
from functions.rules.stopping.ticks import MOST_PROGRESS, bucket_of, is_within_budget
from functions.rules.swarm.handing_out import extension_s, silence_s
from functions.rules.swarm.results import ranked_value, stopped, told_reason
from functions.views.swarm_runs import not_of_a_swarm
from state.change import Change
from state.decisions import Ending, Rank
from state.experiments import Experiments
from state.facts import RankFacts
from state.ids import ExperimentId
from state.policy import TickSource
from state.records import Experiment
from state.settings import Settings


class ReportTick(Request):
    id: ExperimentId
    p: Annotated[float, Field(ge=0, le=MOST_PROGRESS)] = Field(
        description="how far the run is, of its budget", examples=[0.25]
    )
    m: float = Field(description="what it has measured last", examples=[1.07])
    d: float | None = Field(None, description="the same less the worker's baseline", examples=[-0.02])
    tick_source: TickSource = Field(
        "report",
        description="where m comes from: train.py has reported it, or printed it as its loss; see the assignment",
    )


class Told(Sparse):
    action: Literal["stop", "extend"] | None = None
    """Left out: go on."""
    reason: str | None = None
    """Why it has to stop."""
    budget: int | None = None
    """Seconds that it may train in total, if it is extended."""


ON = Told()


@dataclass(frozen=True)
class Stop:
    """An answer that is given once the run has ended."""

    told: Told
    ending: Ending
    rank: Rank | None = None
    """Why it ends, where it has just been ranked."""


def stop(e: Experiment) -> Told:
    """The order to stop, with the reason; the same each time."""
    return Told(action="stop", reason=told_reason(e))


@function("run::tick", Http("POST", "/tick"), role="worker", writes=True, keeps_answer=False)
async def tick(request: ReportTick, call: Call, experiments: Experiments, settings: Settings) -> Told:
    """Report a run's metric on its way; at a tenth and each fifth it is ranked, and may be stopped or extended."""

    async def decide(change: Change) -> Told | Stop:
        facts = await experiments.rank_facts(request.id, source=request.tick_source, change=change)
        e = facts.experiment
        if e.worker_id is None:
            raise not_of_a_swarm(request.id)
        check_worker(call.caller, e.worker_id)
        if e.status != "running":
            return stop(e) if e.status == "stopped" else ON
        if e.stopping:
            return Stop(stop(e), stopped(e, facts.now))
        return await _told(request, facts, change, experiments, settings.stale_s)

    while True:
        told = await experiments.change(decide)
        if isinstance(told, Told):
            return told
        end = told.ending
        if await (experiments.stop_ranked(end, told.rank) if told.rank else experiments.end(end)):
            return told.told


async def _told(
    request: ReportTick, facts: RankFacts, change: Change, experiments: Experiments, grace_s: float
) -> Told | Stop:
    """Store a report, unless the run has to stop for it."""
    e, policy, at = facts.experiment, facts.policy, (request.m, request.p)
    keep = partial(
        experiments.tick,
        change,
        e,
        at,
        silent_s=silence_s(e, policy, facts.now, grace_s),
        is_base=is_within_budget(request.p),
        source=request.tick_source,
    )
    bucket = bucket_of(request.p)
    is_ranked = bucket is not None and looks_at(policy.stopping.rule, bucket) and e.retest_of is None
    if bucket is None or not is_ranked:
        keep()
        return ON
    if (before := e.told_at(bucket)) is not None:
        keep()
        return _answer(before, facts)
    value = ranked_value(e, request.m, request.tick_source, policy)
    peers, tag = await experiments.peers(e, facts.rank_class, bucket, value, change)
    here = checkpoint(facts, bucket, peers, tag)
    extra_s = extension_s(e.budget_s or 0.0, policy)
    here = replace(here, may_extend=here.may_extend and extra_s > 0)
    answer = judge(here, drawn(e.experiment_id, bucket), policy.stopping)
    rank = rank_of(facts, bucket, at, value, here, answer)
    if answer.told == "stop":
        return Stop(_answer("stop", facts), stopped(e, facts.now, rank.reason), rank)
    if answer.told == "extend":
        rank = replace(rank, extra_s=extra_s)
    keep(rank=rank)
    return _answer(answer.told, facts)


def _answer(told: str, facts: RankFacts) -> Told:
    match told:
        case "stop":
            return Told(action="stop", reason=REASON)
        case "extend":
            e, budget_s = facts.experiment, facts.experiment.budget_s or 0.0
            extra_s = e.extended_s or extension_s(budget_s, facts.policy)
            return Told(action="extend", budget=round(budget_s + extra_s))
    return ON
