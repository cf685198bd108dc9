"""swarm::next_config gives a worker of a swarm what to run next."""

from __future__ import annotations

from itertools import count
from random import Random, SystemRandom

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
from functions.rules.swarm.populations import Population, everyone, population_of
from functions.rules.swarm.results import stopped
from functions.swarm._stores import Stores
from functions.views.swarm_runs import HandedOut, handed_out_again_view, handed_out_view
from state.change import Change
from state.errors import BudgetExhausted
from state.ids import Id
from state.records import Experiment
from state.swarm_facts import NextFacts


class AskNext(Request):
    worker_id: Id = Field(description="who asks", examples=["h100-3"])


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

    async def decide(change: Change) -> HandedOut | NextFacts:
        worker = await stores.swarms.known(request.worker_id, change)
        population_id = worker.population_id or everyone(worker.tag).population_id
        facts = await stores.swarms.next_facts(worker, population_id, change)
        check_hands_out(facts)
        if facts.run is None or after_asking_again(facts.run) != "again":
            return change.idle(facts)
        wait_s = lost_after_s(facts.run.budget_s or 0.0, facts.policy)
        stores.experiments.hand_out_again(change, facts.run, facts.worker, wait_s)
        return handed_out_again_view(facts.run, facts.policy.stopping.tick_source)

    rng = SystemRandom()
    for nth in count():
        found = await stores.swarms.change(decide)
        if isinstance(found, HandedOut):
            return found
        if found.run is not None and (after := after_asking_again(found.run)) != "new":
            await _end(found.run, after, found.now, stores)
            continue
        try:
            given = await _new(found, nth, rng, stores)
        except BudgetExhausted as problem:
            raise come_back(problem) from problem
        if given is not None:
            return given
    raise AssertionError


async def _new(facts: NextFacts, nth: int, rng: Random, stores: Stores) -> HandedOut | None:
    """A waiting retest, else a config; None if the facts have changed meanwhile.

    Raises:
        BudgetExhausted: the tag's budget has no room for it.
    """
    worker, experiments, source = facts.worker, stores.experiments, facts.policy.stopping.tick_source
    if (retest := retest_for(facts)) is not None:
        budget_s = retest.budget_s or float(run_time(facts.policy).budget_s)
        wait_s = lost_after_s(budget_s, facts.policy)
        if not await experiments.hand_out_retest(retest, worker, budget_s=budget_s, lost_after_s=wait_s):
            return None
        return handed_out_again_view(retest.model_copy(update={"budget_s": budget_s}), source)
    facts, population = await _of_its_population(facts, stores)
    out = handed_out(facts, population, worker.worker_id, nth, rng)
    given = await experiments.hand_out(worker, out)
    return None if given is None else handed_out_view(given, out, source)


async def _of_its_population(facts: NextFacts, stores: Stores) -> tuple[NextFacts, Population]:
    """The facts with the queue of the worker's population, read again if the worker changes it."""
    population = population_of(facts.worker, facts)
    if population.population_id == facts.waiting_for:
        return facts, population
    facts = await stores.swarms.next_facts(facts.worker, population.population_id)
    return facts, population_of(facts.worker, facts)


async def _end(run: Experiment, after: str, now: float, stores: Stores) -> None:
    ending = stopped(run, now) if after == "stopped" else lost(run, ASKED_AGAIN)
    await stores.experiments.end(ending)
