"""Configs of a swarm: the queue is filled, one is handed out, its result comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cached_property
from itertools import count
from random import Random, SystemRandom
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from functions.experiments.rules.verdict import check_plausible, is_plausible
from functions.kernel.contract import Call, Command, Every, Http, On, Request, Response, function
from functions.kernel.off_loop import statistics_loaded
from functions.kernel.rules.access import check_worker
from functions.swarm.joining import JoiningStores
from functions.swarm.rules.handing_out import (
    after_asking_again,
    check_hands_out,
    come_back,
    handed_out,
    lost,
    lost_after_s,
    not_run,
    retest_for,
    run_time_s,
)
from functions.swarm.rules.populations import everyone, population_of, populations_of
from functions.swarm.rules.refilling import AT_ONCE, replenished
from functions.swarm.rules.results import (
    GIVEN_BACK,
    NO_CONSTANT,
    RETURNED,
    Sent,
    conditions,
    failed,
    is_failure,
    judged,
    judged_value,
    stopped,
)
from functions.swarm.views import HandedOut, handed_out_again_view, handed_out_view, not_of_a_swarm
from state.change import Change
from state.decisions import Ending, Entered, HandOut
from state.errors import BudgetExhausted, Conflict, Forbidden, Invalid
from state.experiments import Experiments
from state.facts import RunFacts
from state.ids import ExperimentId, Id, digest_of
from state.ids import Tag as TagName
from state.policy import TickSource
from state.records import SwarmWorker
from state.swarm_facts import NextFacts, RefillFacts, Replenishing
from state.swarms import Swarms

REFILL_S = 60
LETTERS_AT_ONCE = 1_000_000
"""Most characters of configs in one commit: a longer one blocks Redis and its sender."""
MOST_QUEUES = 500
"""Most queues that one commit changes, in two commands each."""


class Refill(Command):
    tag: TagName | None = Field(
        None, description="only this tag; else every tag that has a swarm", examples=["swarm"]
    )


class Refilled(Response):
    waiting: dict[str, int]
    """Configs that wait now, by tag."""


@function(
    "swarm::refill",
    On(
        "proposals.few",
        "best.changed",
        "experiment.lost",
        "dimension.defined",
        "dimension.frozen",
        "dimension.unfrozen",
        "worker.joined",
        "hypothesis.proposed",
        "hypothesis.believed",
        "hypothesis.settled",
        debounce="tag",
    ),
    Every(REFILL_S),
    role="operator",
    writes=True,
)
async def refill(request: Refill, swarms: Swarms) -> Refilled:
    """Drop the configs that no longer fit, and propose new ones until enough wait; safe to run twice."""
    waiting = dict[str, int]()
    refused: Conflict | Invalid | None = None
    for tag in [request.tag] if request.tag is not None else await swarms.tags():
        try:
            if (count := await _refill(tag, swarms)) is not None:
                waiting[tag] = count
        except (Conflict, Invalid) as problem:  # a sampler of your own is broken: the other tags go on
            refused = problem
    if refused is not None:
        raise refused
    return Refilled(waiting=waiting)


async def _refill(tag: str, swarms: Swarms) -> int | None:
    """How many configs wait in a tag then; None where it has no swarm."""

    async def decide(change: Change) -> tuple[int | None, bool]:
        named = await swarms.populations(tag)
        if named is None:
            return None, True
        facts = await swarms.refill_facts(tag, [*named, everyone(tag).population_id], change)
        # in a thread: the sampler takes milliseconds for each config
        changes = await asyncio.to_thread(_as_many_as_fit, _replenished(facts))
        swarms.refill(change, tag, changes)
        waiting = sum(map(len, facts.waiting.values()))
        waiting += sum(len(new.added) - len(new.dropped) for new in changes.values())
        is_done = len(changes) == len(facts.waiting) and all(len(c.added) < AT_ONCE for c in changes.values())
        return waiting, is_done

    while True:
        waiting, is_done = await swarms.change(decide)
        if is_done:
            return waiting


def _as_many_as_fit(changes: Iterator[tuple[str, Replenishing]]) -> dict[str, Replenishing]:
    """The next changes, as many as one commit takes; usually all."""
    part, letters, queues = dict[str, Replenishing](), 0, 0
    for name, change in changes:
        part[name] = change
        letters += sum(map(len, change.dropped)) + sum(len(text) for text, _ in change.added)
        queues += bool(change.dropped or change.added)
        if letters > LETTERS_AT_ONCE or queues == MOST_QUEUES:
            break
    return part


def _replenished(facts: RefillFacts) -> Iterator[tuple[str, Replenishing]]:
    """The changes of the queues that were read. With populations, the queue for everyone is dropped."""
    rng, known = SystemRandom(), {p.population_id: p for p in populations_of(facts)}
    for name, waiting in facts.waiting.items():
        yield name, replenished(facts, known[name], rng) if name in known else Replenishing(waiting, [])


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
async def next_config(request: AskNext, call: Call, stores: JoiningStores) -> HandedOut:
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


async def _new(change: Change, facts: NextFacts, rng: Random, stores: JoiningStores) -> HandedOut | Given:
    """A waiting retest, else a config. Raises BudgetExhausted: the tag's budget has no room for it."""
    worker, experiments, source = facts.worker, stores.experiments, facts.policy.stopping.tick_source
    if (retest := retest_for(facts)) is not None:
        budget_s = retest.budget_s or float(run_time_s(facts.policy))
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


FINAL = ("keep", "discard", "crash", "timeout", "invalid", "retracted", "measured")


class SendResult(Command):
    worker_id: Id = Field(description="who ran it", examples=["h100-3"])
    exp_id: ExperimentId
    config: dict[str, Any] = Field(
        default_factory=dict,
        max_length=1000,
        description="all constants that it ran with; not kept",
        examples=[{"LR": 0.001}],
    )
    config_delta: dict[str, Any] = Field(
        default_factory=dict,
        max_length=1000,
        description="what it was handed out; the lab knows it",
        examples=[{"LR": 0.001}],
    )
    val_bpb: float | None = Field(
        None, description="what it measured; null with an error, or after a stop", examples=[0.9979]
    )
    delta_bpb: float | None = Field(
        None, description="the same less the worker's baseline; the lab computes its own", examples=[-0.01]
    )
    duration_seconds: Annotated[float, Field(ge=0, le=1e9)] = Field(
        description="how long it trained", examples=[300.4]
    )
    cpu_seconds: Annotated[float, Field(ge=0, le=1e9)] | None = Field(
        None, description="CPU seconds of its processes; published workers send none", examples=[290.5]
    )
    hung: bool = Field(
        False, description="whether it hung after it had printed its result; published workers do not say"
    )
    error: Annotated[str, Field(max_length=65536)] | None = Field(
        None,
        description="why there is no value: TIMEOUT, returned (others are to run its config), no such constant"
        " (nor can others), or the log's end",
        examples=["TIMEOUT"],
    )

    @cached_property
    def sent(self) -> Sent:
        return Sent(
            self.val_bpb,
            self.error,
            self.duration_seconds,
            self.cpu_seconds,
            self.delta_bpb,
            digest_of(self),
            self.hung,
        )


class TakenResult(Response):
    ok: bool
    total_experiments: int
    """Runs of the swarm that ended with a value, or were stopped."""


@function("swarm::result", Http("POST", "/result"), role="worker", writes=True, keeps_answer=False)
async def result(request: SendResult, call: Call, stores: JoiningStores) -> TakenResult:
    """Send a run's result; its delta is computed here, and a repeated result is counted once."""
    experiments = stores.experiments

    async def taken(change: Change) -> RunFacts:
        run = await experiments.run_facts(change, request.exp_id)
        e = run.experiment
        if e.worker_id is None:
            raise not_of_a_swarm(request.exp_id)
        check_worker(call.caller, e.worker_id)
        if request.worker_id != e.worker_id:
            raise Forbidden(
                f"{e.experiment_id} was handed out to {e.worker_id!r}, not to {request.worker_id!r}",
                hint="send the worker_id that asked for the run",
            )
        if e.status in FINAL:
            return change.idle(run)
        if e.status == "stopped":
            if request.val_bpb is not None and is_plausible(run.tag.metric, request.val_bpb):
                await experiments.keep_late_value(e, request.val_bpb)
            return change.idle(run)
        error = request.error or ""
        if request.val_bpb is None and (error == RETURNED or error.startswith(NO_CONSTANT)):
            if e.status != "running":
                return change.idle(run)
            ending = lost(e, GIVEN_BACK) if error == RETURNED else not_run(e, error)
            await experiments.finish(change, run, ending)
            return run
        under = conditions(run)
        value = None if is_failure(request.sent) else judged_value(request.sent, run)
        beside = await experiments.comparison(
            change, run, under.key.gpu_class, under.other_key, under.code, value
        )
        if value is None:
            ending = failed(request.sent, run, beside)
        else:
            check_plausible(run.tag.metric, request.val_bpb or 0.0)
            if beside.noise.is_known:
                await statistics_loaded()
            ending = judged(request.sent, run, under, beside)
        await experiments.finish(change, run, ending, beside)
        return run

    run = await experiments.judging(request.exp_id, taken)
    return TakenResult(ok=True, total_experiments=await stores.swarms.results(run.tag.name))


class SweptSwarms(Response):
    lost: list[str]
    """Runs that are lost now; their configs wait for other workers."""


SILENT = "its worker sent no result in time"


@function("swarm::sweep", Every("sweep_s"), role="operator", writes=True)
async def sweep(request: Command, experiments: Experiments) -> SweptSwarms:
    """Mark runs as lost whose workers sent no result in time; a late result still counts once."""
    silent = [run for run in await experiments.overdue() if run.status == "running"]
    return SweptSwarms(
        lost=[e.experiment_id for e in silent if await experiments.end(lost(e, SILENT), only_overdue=True)]
    )
