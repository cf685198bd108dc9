"""Runs of a swarm's workers: started, ticking, stopped, counted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel

from functions.experiments.rules.reports import already_finished
from functions.kernel.contract import Call, Command, Http, OfSwarm, Request, Response, Sparse, function
from functions.kernel.rules.access import check_worker
from functions.runs.rules.stopping import REASON, checkpoint, drawn, judge, looks_at, rank_of
from functions.runs.rules.ticks import MOST_PROGRESS, bucket_of, is_within_budget
from functions.runs.rules.time_limits import has_used_extension
from functions.swarm.joining import JoiningStores
from functions.swarm.rules.handing_out import (
    DRAWN_PRIORITY,
    MOST_ACTIVE,
    check_begins_another,
    check_hands_out,
    checked_config,
    come_back,
    extension_s,
    hand_out,
    run_time_s,
    silence_s,
)
from functions.swarm.rules.populations import Purpose, named_population
from functions.swarm.rules.results import ranked_value, stopped, told_reason
from functions.swarm.views import ToldTickSource, not_of_a_swarm
from state.change import Change
from state.decisions import Ending, Entered, HandOut, Rank
from state.errors import BudgetExhausted
from state.experiments import Experiments
from state.facts import RankFacts
from state.ids import ExperimentId, Id
from state.policy import TickSource
from state.records import Experiment
from state.settings import Settings
from state.swarm_facts import ActiveRun


class StartRun(Command):
    worker_id: Id = Field(description="who runs it", examples=["h100-3"])
    config_delta: dict[str, Any] = Field(
        default_factory=dict,
        max_length=64,
        description="dimensions with their values; empty: the unchanged train.py",
        examples=[{"LR": 0.001}],
    )
    population_id: Annotated[str, Field(max_length=20)] | None = Field(
        None, description="the population that it belongs to", examples=["pop_1f0a3c"]
    )


class StartedRun(Response):
    run_id: str
    budget_seconds: int
    tick_source: ToldTickSource = "report"
    """As of swarm::next_config."""


@function(
    "run::start",
    Http("POST", "/runs/start/{worker_id}", query=("population_id",), body="config_delta"),
    role="worker",
    writes=True,
)
async def start(request: StartRun, call: Call, stores: JoiningStores) -> StartedRun:
    """Begin a further run, with a config of your own; its id goes to POST /tick and, as exp_id, to POST /result."""
    check_worker(call.caller, request.worker_id)

    async def decide(change: Change) -> tuple[Entered, HandOut, TickSource]:
        worker = await stores.swarms.remembered(request.worker_id)
        facts = await stores.swarms.next_facts(worker, worker.population_id or "", change)
        worker = facts.worker
        check_begins_another(worker)
        population = named_population(request.population_id, worker, facts)
        check_hands_out(facts)
        config = checked_config(request.config_delta, facts.dimensions)
        out = hand_out(
            facts,
            population,
            worker.worker_id,
            config,
            Purpose(population.strategy, population.shape, facts.policy.belief.evidence),
            priority=DRAWN_PRIORITY,
            is_extra=True,
            most_active=MOST_ACTIVE,
        )
        try:
            given = await stores.experiments.hand_out(change, facts, worker, out)
        except BudgetExhausted as problem:
            raise come_back(problem) from problem
        assert given is not None  # it may have any number of trials
        return given, out, facts.policy.stopping.tick_source

    entered, out, source = await stores.swarms.change(decide)
    return StartedRun(run_id=entered.experiment_id, budget_seconds=round(out.budget_s), tick_source=source)


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
class StopOrder:
    """An answer that is given once the run has ended."""

    told: Told
    ending: Ending
    rank: Rank | None = None


def stop(e: Experiment) -> Told:
    """The order to stop, with the reason; the same each time."""
    return Told(action="stop", reason=told_reason(e))


@function("run::tick", Http("POST", "/tick"), role="worker", writes=True, keeps_answer=False)
async def tick(request: ReportTick, call: Call, experiments: Experiments, settings: Settings) -> Told:
    """Report a run's metric on its way; at a tenth and each fifth it is ranked, and may be stopped or extended."""

    async def decide(change: Change) -> Told | StopOrder:
        facts = await experiments.rank_facts(change, request.id, source=request.tick_source)
        e = facts.experiment
        if e.worker_id is None:
            raise not_of_a_swarm(request.id)
        check_worker(call.caller, e.worker_id)
        if e.status != "running":
            return stop(e) if e.status == "stopped" else ON
        if e.stopping:
            return StopOrder(stop(e), stopped(e, facts.now))
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
) -> Told | StopOrder:
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
    peers, tag = await experiments.peers(change, e, facts.rank_class, bucket, value)
    here = checkpoint(facts, bucket, peers, tag)
    extra_s = extension_s(e.budget_s or 0.0, policy)
    here = replace(here, may_extend=here.may_extend and extra_s > 0)
    answer = judge(here, drawn(e.experiment_id, bucket), policy.stopping)
    rank = rank_of(facts, bucket, at, value, here, answer)
    if answer.told == "stop":
        return StopOrder(_answer("stop", facts), stopped(e, facts.now, rank.reason), rank)
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


class StopRun(Command):
    run_id: ExperimentId
    reason: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        "an operator stopped it", description="why, for the record", examples=["the machine is needed"]
    )


class StoppedRun(Response):
    ok: bool


@function("run::stop", Http("DELETE", "/runs/{run_id}"), role="operator", writes=True, keeps_answer=False)
async def stop_run(request: StopRun, experiments: Experiments) -> StoppedRun:
    """Stop a run: it ends now, and its worker is told at its next report."""

    async def decide(change: Change) -> StoppedRun:
        run = await experiments.run_facts(change, request.run_id)
        e = run.experiment
        if e.worker_id is None:
            raise not_of_a_swarm(request.run_id)
        if e.status == "stopped":
            return change.idle(StoppedRun(ok=True))
        if e.status != "running":
            raise already_finished(e)
        await experiments.finish(change, run, stopped(e, run.now, request.reason))
        return StoppedRun(ok=True)

    return await experiments.judging(request.run_id, decide)


class ActiveRunView(Response):
    id: str
    worker_id: str | None
    state: Literal["active", "complete", "stopped", "extended"]
    progress: float
    """0 before its first report."""
    metric: float | None
    """Its last reported value; under stopping.tick_source stdout, the last printed loss."""
    elapsed: float
    """Seconds since it was handed out."""
    budget: float
    """Seconds that it may train, in all."""
    population: str | None


class ActiveRuns(RootModel[list[ActiveRunView]]):
    """Every run, from its hand-out until its result; the oldest first."""


def _state(run: ActiveRun) -> Literal["active", "stopped", "extended"]:
    if run.stopping:
        return "stopped"
    return "extended" if has_used_extension(run.extended_s, run.last_progress) else "active"


@function("run::active", Http("GET", "/runs/active"), role=("viewer", "worker"))
async def active(request: OfSwarm, stores: JoiningStores, settings: Settings) -> ActiveRuns:
    """Every active run of a swarm, the oldest first."""
    now, runs = await stores.swarms.active_runs(request.tag_in(settings))
    return ActiveRuns(
        [
            ActiveRunView(
                id=run.experiment_id,
                worker_id=run.worker_id,
                state=_state(run),
                progress=run.last_progress or 0.0,
                metric=run.last_metric,
                elapsed=max(0.0, now - (run.started_at or now)),
                budget=(run.budget_s or 0.0) + (run.extended_s or 0.0),
                population=run.population_id,
            )
            for run in runs
        ]
    )


class BucketView(Response):
    """Values of all runs at one bucket, as they are ranked; null while there are none."""

    p25: float | None = None
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    n: int


class RunStats(Response):
    active: int
    completed: int
    """Runs that ended with a value."""
    killed: int
    """Runs that were stopped."""
    extended: int
    """Runs that were given more time, and have reported beyond their budget."""
    kill_rate: float
    """Percent of the ended runs that were stopped, 0 to 100."""
    saved_gpu_seconds: float
    """What stopped runs had left of the budget when they were stopped."""
    best_delta: float | None
    """The best run's value less its worker's baseline."""
    bucket_pools: dict[str, BucketView]
    """By progress: "0.2", "0.4", "0.6", "0.8" and "1.0"."""


@function("run::stats", Http("GET", "/runs/stats"), role=("viewer", "worker"))
async def stats(request: OfSwarm, stores: JoiningStores, settings: Settings) -> RunStats:
    """Numbers of runs of a swarm: active, ended, stopped and extended."""
    tag = request.tag_in(settings)
    swarms = stores.swarms
    (_, runs), facts, leaders, pools, stopped_at = await asyncio.gather(
        swarms.active_runs(tag),
        swarms.find(tag),
        swarms.leaders(tag, 1),
        swarms.pools(tag),
        swarms.stopped_at(tag),
    )
    left = sum((1 - bucket) * runs for bucket, runs in stopped_at.items())
    killed, ended = (facts.tag.stopped, facts.tag.results) if facts else (0, 0)
    return RunStats(
        active=len(runs),
        completed=ended - killed,
        killed=killed,
        extended=facts.tag.extended if facts else 0,
        kill_rate=round(100 * killed / max(ended, 1), 1),
        saved_gpu_seconds=round(left * run_time_s(facts.policy), 1) if facts else 0.0,
        best_delta=leaders[0].best_delta_bpb if leaders else None,
        bucket_pools={
            f"{bucket:.1f}": BucketView(**{f"p{percent}": value for percent, value in values.items()}, n=n)
            for bucket, (n, values) in pools.items()
        },
    )
