"""experiment::settle lets keeps stand or fall by their retests, and has run again what is still owed a retest."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from functions.contract import Command, On, Response, function
from functions.rules.branches.forest import regrown
from functions.rules.keeps.keeping import Trial
from functions.rules.keeps.noise import Mean, Noise, noise_of, p_better, parsed
from functions.rules.keeps.settling import (
    NO_FAULT,
    Confirm,
    Contender,
    Demote,
    Dismiss,
    Effort,
    GiveUp,
    Promote,
    RunAgain,
    Step,
    next_seed,
    next_step,
)
from functions.rules.keeps.standing import falls, rises, stands, without_rivals
from functions.rules.keeps.verdict import TOLERANCE, score
from functions.rules.pool.health import is_stale
from state.codes import code_of
from state.decisions import Growth, Ruling
from state.errors import BudgetExhausted
from state.experiments import Experiments
from state.ids import Id
from state.ids import Tag as TagName
from state.noise import Noises
from state.policies import Policies
from state.policy import Policy
from state.pool import Pool
from state.records import OPEN, RETESTED, Best, Experiment, Tag
from state.settings import Settings
from state.tags import Tags
from state.traces import Traces

log = logging.getLogger(__name__)

PRIORITY = 7
"""A retest goes before new ideas: they are built on what it decides."""
KEEPS_READ = 200
"""Of a tag's newest keeps the comparability keys are taken, to settle all of them."""


class Settle(Command):
    experiment_id: Id | None = Field(None, description="settle what stands under its comparability key")
    tag: TagName | None = Field(None, description="without an experiment: settle all that stands in this tag")

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if self.experiment_id is None and self.tag is None:
            raise ValueError("name an experiment_id or a tag")
        return self


class Steps(Response):
    steps: list[str]
    """What was done, in order, such as `confirm mar11-7`."""


@dataclass(frozen=True)
class Race:
    """A best with the records of everybody who may yet take its place."""

    tag: Tag
    policy: Policy
    best: Best
    runs: Mapping[str, Experiment]
    retests: Mapping[str, list[Experiment]]
    noise: Noise | None
    effort: Effort

    def contender(self, name: str) -> Contender:
        e, its = self.runs[name], self.retests[name]
        by_seed = sorted(its, key=lambda r: r.seed or 0)
        fresh = [r.val_bpb for r in by_seed if r.status == RETESTED and r.val_bpb is not None]
        first = next(
            link.val_bpb for link in (*self.best.chain, *self.best.rivals) if link.experiment_id == name
        )
        return Contender(
            Trial(
                name,
                score(first, self.tag.direction),
                tuple(score(value, self.tag.direction) for value in fresh),
            ),
            e.trust,
            started=len(its),
            under_way=sum(r.status in OPEN for r in its),
            broke=any(r.status in ("crash", "timeout") and r.error_kind not in NO_FAULT for r in its),
            trainable=e.attempt > 0,
            is_baseline=bool(e.improved) and e.delta == 0,
        )

    def step(self) -> Step | None:
        return next_step(
            [self.contender(link.experiment_id) for link in self.best.chain],
            [self.contender(link.experiment_id) for link in self.best.rivals],
            self.noise.sigma if self.noise else None,
            self.effort,
        )


@function(
    "experiment::settle",
    On("experiment.finished", "experiment.retesting", "experiment.retested", "tag.budget_changed"),
    role="operator",
    writes=True,
)
async def settle(
    request: Settle,
    experiments: Experiments,
    tags: Tags,
    policies: Policies,
    pool: Pool,
    noises: Noises,
    traces: Traces,
    settings: Settings,
) -> Steps:
    """Take every step that the retests of a tag's newest keeps allow; safe to run twice, anywhere, at once."""
    steps: list[str] = []
    for e in await _concerned(request, experiments, tags):
        if e.retests:
            [its] = await experiments.retests([e])
            await _queue_begun(e, its, (await policies.get(e.tag))[0], experiments)
        steps += await _settled_all(
            e.tag, e.best_key, experiments, tags, policies, pool, noises, traces, settings
        )
    return Steps(steps=steps)


async def _concerned(request: Settle, experiments: Experiments, tags: Tags) -> list[Experiment]:
    """One experiment of each best that is to be settled; who is named by a retest is the one that it repeats."""
    if request.experiment_id is None:
        tag = await tags.get(request.tag or "")
        keeps = await experiments.by_number(tag.name, "keep", KEEPS_READ)
        return list({e.best_key: e for e in keeps}.values())
    e = await experiments.get(request.experiment_id)
    return [e if e.retest_of is None else await experiments.get(e.retest_of)]


async def _queue_begun(
    first: Experiment, retests: Iterable[Experiment], policy: Policy, experiments: Experiments
) -> None:
    """Queue what was cut off between its beginning and its place in the queue."""
    for again in retests:
        if again.status == "registered" and again.agent is None:
            await enqueue_retest(again, first, policy, experiments)


async def _settled_all(
    tag: str,
    best_key: str | None,
    experiments: Experiments,
    tags: Tags,
    policies: Policies,
    pool: Pool,
    noises: Noises,
    traces: Traces,
    settings: Settings,
) -> list[str]:
    """Every step that can be taken under one comparability key."""
    steps: list[str] = []
    while True:
        best = await experiments.best(tag, best_key)
        if best is None or not best.chain:
            return steps
        race = await _race(tag, best, experiments, tags, policies, pool, noises, settings)
        for name, its in race.retests.items():
            await _queue_begun(race.runs[name], its, race.policy, experiments)
        step = race.step()
        if step is None:
            return steps
        if isinstance(step, RunAgain):
            first = race.runs[step.name]
            try:
                done = await retest(first, race.policy, experiments) is not None
            except BudgetExhausted as problem:  # a result, or another budget, looks again
                log.warning("%s is not run again: %s", step.name, problem.detail)
                return steps
        else:
            settled = await _settled(step, race, noises)
            growths = await _regrowths(settled, experiments, traces)
            done = await experiments.judge(replace(settled, growths=growths))
        if done:
            steps.append(_words(step))


async def retest(first: Experiment, policy: Policy, experiments: Experiments) -> Experiment | None:
    """Have an experiment's code run once more on its next fixed seed; None where another was begun just now.

    Raises:
        BudgetExhausted: the tag's budget has no room for the run.
    """
    seed = await seed_for(first, experiments)
    begun = await experiments.begin_retest(first, seed, reserve_s=budget_of(first, policy))
    if begun is not None:
        await enqueue_retest(begun, first, policy, experiments)
    return begun


async def seed_for(first: Experiment, experiments: Experiments) -> int:
    """The seed of an experiment's next retest."""
    [retests] = await experiments.retests([first])
    used = [r.seed for r in retests if r.status in (*OPEN, RETESTED)]
    return next_seed(first.seed, used)


async def enqueue_retest(
    again: Experiment, first: Experiment, policy: Policy, experiments: Experiments
) -> None:
    """Put a retest, for which a run is set aside, into the wait queue; done twice, it is done once."""
    budget = budget_of(first, policy)
    await experiments.enqueue(
        again,
        turn=None,
        priority=PRIORITY,
        pinned_gpu=None,
        budget_s=budget,
        timeout_s=first.timeout_s or 2 * budget + 60,
    )


def budget_of(first: Experiment, policy: Policy) -> float:
    """Seconds that a retest trains: what the first run had."""
    return first.budget_s or first.budget_seconds or policy.budgets.base_s


async def _race(
    tag: str,
    best: Best,
    experiments: Experiments,
    tags: Tags,
    policies: Policies,
    pool: Pool,
    noises: Noises,
    settings: Settings,
) -> Race:
    policy, _ = await policies.get(tag)
    names = [link.experiment_id for link in (*best.chain, *best.rivals)]
    runs = await experiments.many(names)
    gpu_class = runs[0].gpu_class
    spread = await noises.spread(tag, gpu_class)
    now = await pool.now()
    gpus = [
        g
        for g in await pool.all()
        if g.owner is None
        and g.status in ("idle", "training")
        and not is_stale(g.heartbeat_at, now, settings.stale_s)
        and gpu_class in (None, g.gpu_name)
    ]
    return Race(
        tag=await tags.get(tag),
        policy=policy,
        best=best,
        runs={run.experiment_id: run for run in runs},
        retests=dict(zip(names, await experiments.retests(runs), strict=True)),
        noise=noise_of(spread.squares, spread.df),
        effort=Effort(policy.max_retests, policy.retest_top_k, 1 < policy.retest_top_k <= len(gpus)),
    )


async def _settled(step: Confirm | Demote | GiveUp | Promote | Dismiss, race: Race, noises: Noises) -> Ruling:
    best, direction = race.best, race.tag.direction
    if isinstance(step, Dismiss):
        incumbent = race.runs[best.chain[0].experiment_id]
        return Ruling(incumbent, incumbent.status, {}, best, without_rivals(best), None, None, {})
    e = race.runs[step.name]
    match step:
        case GiveUp():
            fields: dict[str, Any] = {"trust": "unconfirmed"}
            return Ruling(e, "keep", fields, best, best, None, "unconfirmed", {})
        case Confirm():
            after = stands(best, step.name, direction)
            fields = {"p_better": await _chance(e, race, noises)}
            told: Literal["confirmed"] | None = None
            if e.trust in ("provisional", "unconfirmed"):
                fields["trust"] = told = "confirmed"
            return Ruling(e, "keep", fields, best, after, None, told, _facts(e, race, after))
        case Promote():
            after = rises(best, step.name)
            fields = {
                "trust": "confirmed",
                "improved": True,
                "delta": score(best.val_bpb, direction) - score(e.val_bpb or math.nan, direction),
                "near_miss": False,
                "base_commit_sha": e.commit_sha,
            }
            fields["p_better"] = await _chance(e, race, noises)
            return Ruling(e, "keep", fields, best, after, None, "promoted", _facts(e, race, after))
        case Demote():
            after = falls(best, step.name, direction)
            mine, theirs = score(e.val_bpb or math.nan, direction), score(after.val_bpb, direction)
            fields = {
                "trust": "demoted",
                "improved": False,
                "near_miss": abs(mine - theirs) <= race.policy.near_miss_margin + TOLERANCE,
                "base_commit_sha": after.commit_sha,
                "p_better": await _chance(e, race, noises),
            }
            facts = _facts(e, race, after)
            if len(after.chain) == 1:
                facts["retest"] = [r.experiment_id for r in after.rivals[: race.effort.top_k]]
            near = mine if e.best_key is None else None
            return Ruling(e, "discard", fields, best, after, near, "demoted", facts)


def _facts(e: Experiment, race: Race, after: Best) -> dict[str, Any]:
    """What everybody has to know of a verdict: by which values, and what to build on now."""
    retests = [r.val_bpb for r in race.retests[e.experiment_id] if r.status == RETESTED]
    return {
        "retests": retests,
        "against": race.best.chain[0].experiment_id,
        "best_experiment_id": after.experiment_id,
        "best_val_bpb": after.val_bpb,
        "base_commit_sha": after.commit_sha,
    }


async def _chance(e: Experiment, race: Race, noises: Noises) -> float | None:
    """How probably it truly beats the incumbent, by all runs of both; None where that is not known."""
    chain = [link.experiment_id for link in race.best.chain]
    under = chain[: chain.index(e.experiment_id)] if e.experiment_id in chain else chain
    if not under or race.noise is None:
        return e.p_better
    incumbent = race.runs[under[0]]
    spread = await noises.spread(e.tag, e.gpu_class, code_of(e, e.best_key), code_of(incumbent, e.best_key))
    mine, theirs = (parsed(kept) for kept in spread.runs)
    if mine is None or theirs is None:
        return e.p_better
    return await asyncio.to_thread(
        p_better, Mean(mine.mean, mine.runs), Mean(theirs.mean, theirs.runs), race.noise, race.tag.direction
    )


def _words(step: Step) -> str:
    return f"{type(step).__name__} {getattr(step, 'name', 'rivals')}".lower()


async def _regrowths(ruling: Ruling, experiments: Experiments, traces: Traces) -> list[Growth]:
    """Trace updates that follow from a demotion or promotion."""
    e = ruling.experiment
    if ruling.status == e.status:
        return []
    kept = ruling.status == "keep"
    found = {trace.trace_id: trace for trace in await traces.many([e.trace_id] if e.trace_id else [])}
    base = None
    if not kept:
        found |= {trace.trace_id: trace for trace in await traces.standing_on(e.tag, e.experiment_id)}
        base = await experiments.base_above(e.parent_ids)
    epoch = await traces.epoch(e.tag)
    return [regrown(trace, epoch, e, kept, base) for trace in found.values()]
