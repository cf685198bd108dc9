"""swarm::next_config gives a worker of a swarm what to run next."""

from __future__ import annotations

from itertools import count
from random import Random, SystemRandom
from typing import NamedTuple

from pydantic import Field

from functions.contract import Call, Http, Request, function
from functions.rules.access import check_worker
from functions.rules.swarm.handing_out import (
    after_asking_again,
    check_hands_out,
    come_back,
    handed_out,
    lost,
    lost_after_s,
    retest_for,
    run_time,
)
from functions.rules.swarm.populations import everyone, population_of
from functions.rules.swarm.results import stopped
from functions.swarm._stores import Stores
from functions.views.swarm_runs import HandedOut, handed_out_again_view, handed_out_view
from state.change import Change
from state.decisions import Ending, HandOut
from state.entries import Entered
from state.errors import BudgetExhausted
from state.ids import Id
from state.policy import TickSource
from state.records import SwarmWorker
from state.swarm_facts import NextFacts


class AskNext(Request):
    worker_id: Id = Field(description="who asks", examples=["h100-3"])


class Given(NamedTuple):
    """A config that is handed out once its change is committed."""

    entered: Entered
    out: HandOut
    source: TickSource
    worker: SwarmWorker


ASKED_AGAIN = "its worker asked for another one without a result, twice"


@function(
    "swarm::next_config",
    Http("GET", "/next_config/{worker_id}"),
    Http("POST", "/next_config/{worker_id}"),
    role="worker",
    writes=True,
    keeps_answer=False,
)
async def next_config(request: AskNext, call: Call, stores: Stores) -> HandedOut:
    """Get the next config with its run; asked again without a result, the same once more, then another."""
    check_worker(call.caller, request.worker_id)

    rng = SystemRandom()

    async def decide(change: Change) -> HandedOut | Ending | Given:
        worker = await stores.swarms.remembered(request.worker_id)
        population_id = worker.population_id or everyone(worker.tag).population_id
        facts = await stores.swarms.next_facts(worker, population_id, change)
        check_hands_out(facts)
        if facts.run is None or (after := after_asking_again(facts.run)) == "new":
            try:
                return await _new(change, facts, rng, stores)
            except BudgetExhausted as problem:
                raise come_back(problem) from problem
        if after != "again":
            return change.idle(
                stopped(facts.run, facts.now) if after == "stopped" else lost(facts.run, ASKED_AGAIN)
            )
        wait_s = lost_after_s(facts.run.budget_s or 0.0, facts.policy)
        stores.experiments.hand_out_again(change, facts.run, facts.worker, wait_s)
        return handed_out_again_view(facts.run, facts.policy.stopping.tick_source)

    while True:
        match await stores.swarms.change(decide):
            case HandedOut() as again:
                return again
            case Given(entered, out, source, worker):
                now = {"run_id": entered.experiment_id, "population_id": out.population_id}
                stores.swarms.remember(worker.model_copy(update=now))
                return handed_out_view(entered.experiment_id, out, source)
            case ending:
                await stores.experiments.end(ending)


async def _new(change: Change, facts: NextFacts, rng: Random, stores: Stores) -> HandedOut | Given:
    """A waiting retest, else a config.

    Raises:
        BudgetExhausted: the tag's budget has no room for it.
    """
    worker, experiments, source = facts.worker, stores.experiments, facts.policy.stopping.tick_source
    if (retest := retest_for(facts)) is not None:
        budget_s = retest.budget_s or float(run_time(facts.policy).budget_s)
        wait_s = lost_after_s(budget_s, facts.policy)
        if await experiments.hand_out_retest(change, retest, worker, budget_s=budget_s, lost_after_s=wait_s):
            return handed_out_again_view(retest.model_copy(update={"budget_s": budget_s}), source)
    population = population_of(worker, facts)
    if population.population_id != facts.waiting_for:
        facts = await stores.swarms.next_facts(worker, population.population_id, change)
        population = population_of(facts.worker, facts)
    for nth in count():
        out = handed_out(facts, population, worker.worker_id, nth, rng)
        if (entered := await experiments.hand_out(change, facts, worker, out)) is not None:
            return Given(entered, out, source, facts.worker)
    raise AssertionError
