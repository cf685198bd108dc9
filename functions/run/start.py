"""run::start begins a run of a worker's own choice, beside the one that it was handed out."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from functions.contract import Call, Command, Http, Response, function
from functions.rules.access import check_worker
from functions.rules.swarm.handing_out import (
    DRAWN_PRIORITY,
    MOST_ACTIVE,
    check_begins_another,
    check_hands_out,
    checked_config,
    come_back,
    hand_out,
)
from functions.rules.swarm.populations import Purpose, named_population
from functions.run._stores import Stores
from functions.views.swarm_runs import ToldTickSource
from state.change import Change
from state.decisions import HandOut
from state.entries import Entered
from state.errors import BudgetExhausted
from state.ids import Id
from state.policy import TickSource


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
async def start(request: StartRun, call: Call, stores: Stores) -> StartedRun:
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
