"""experiment::judge_retests confirms or demotes keeps by their retests, and begins the retests that are due."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Self

from pydantic import Field, model_validator

from functions.contract import Command, On, Response, function
from functions.experiment._judging import Judging, bases_without, see_to_claim, stop_retests
from functions.experiment._reports import statistics_loaded
from functions.fold import change
from functions.rules.branches.forest import regrown
from functions.rules.keeps.retests import Revalue, RunAgain, Step
from functions.rules.keeps.retracting import has_fallen
from functions.rules.keeps.ruling import Race, in_words, without_gain
from state.decisions import Growth, Ruling
from state.errors import BudgetExhausted
from state.ids import ExperimentId, named_by
from state.ids import Tag as TagName
from state.records import Experiment, Tag

log = logging.getLogger(__name__)

NEWEST_READ = 200
"""Newest keeps that are read for a tag's comparability keys, and newest discards for its claims."""


class JudgeRetests(Command):
    experiment_id: ExperimentId | None = Field(
        None, description="judge what stands under its comparability key"
    )
    tag: TagName | None = Field(None, description="without an experiment: judge all that stands in this tag")

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if self.experiment_id is None and self.tag is None:
            raise ValueError("name an experiment_id or a tag")
        return self


class Steps(Response):
    steps: list[str]
    """What was done, in order, such as `confirm mar11-7`."""


@function(
    "experiment::judge_retests",
    On(
        *("experiment.finished", "experiment.retesting", "experiment.retested", "experiment.retracted"),
        *("experiment.confirmed", "experiment.revalued", "experiment.demoted", "tag.budget_changed"),
    ),
    role="operator",
    writes=True,
)
async def judge_retests(request: JudgeRetests, judging: Judging) -> Steps:
    """Take every step that retests allow a tag's newest keeps and claims; safe to run twice, anywhere, at once."""
    concerned = await _concerned(request, judging)
    steps = await _measure_claims(concerned, judging)
    for tag, best_key in dict.fromkeys((e.tag, e.best_key) for e in concerned):
        steps += map(in_words, await _steps_of(tag, best_key, judging))
    return Steps(steps=steps)


async def _measure_claims(concerned: list[Experiment], judging: Judging) -> list[str]:
    """Run or judge the claims among them. A judged claim joins `concerned`, because its new best may need steps."""
    steps: list[str] = []
    may_run = True
    for claim in [e for e in concerned if e.is_claim]:
        try:
            done = await see_to_claim(claim.experiment_id, judging, may_run=may_run)
        except BudgetExhausted as problem:  # a run that ends, or another budget, has them looked at again
            log.warning("%s: no further claim is run: %s", claim.tag, problem.detail)
            may_run = False
            continue
        if done is not None:
            steps.append(done)
            concerned.append(await judging.experiments.get(claim.experiment_id))
    return steps


async def _steps_of(tag: str, best_key: str | None, judging: Judging) -> list[Step]:
    """Take the steps of one best, until a retest is awaited."""
    steps: list[Step] = []
    may_run = True
    while (facts := await judging.experiments.race(tag, best_key)) is not None:
        await statistics_loaded(facts.noise)
        race = Race(facts)
        step = race.step(may_run=may_run)
        if step is None:
            break
        try:
            steps += [step] if await _take(step, race, judging) else []
        except BudgetExhausted as problem:  # a result, or another budget, judges again
            log.warning("%s: no further run: %s", tag, problem.detail)
            may_run = False
    return steps


async def _concerned(request: JudgeRetests, judging: Judging) -> list[Experiment]:
    """The experiment with all claims that may run now; without an experiment, the tag's newest keeps and claims.

    After a demotion or retraction a claim may be worth a run. After each run the budget may have room for a claim.
    """
    experiments = judging.experiments
    if request.experiment_id is not None:
        first, _ = named_by(request.experiment_id)
        facts = await experiments.retest_facts(first)
        e, tag = facts.experiment, facts.tag
        if e.status == "retracted":
            await stop_retests(e, experiments)
        if has_fallen(e) or (tag.takes_claims and tag.has_budget):
            return [e, *await experiments.claims(e.tag, NEWEST_READ)]
        return [e]
    tag = await judging.tags.get(request.tag or "")
    keeps = await experiments.by_number(tag.name, "keep", NEWEST_READ)
    return [*keeps, *await experiments.claims(tag.name, NEWEST_READ)]


async def _take(step: Step, race: Race, judging: Judging) -> bool:
    """Take a step; False where its facts have changed.

    Raises:
        BudgetExhausted: a further run has to wait for a budget.
    """
    experiments = judging.experiments
    if isinstance(step, RunAgain):
        return await experiments.begin_retest(race.retest(step)) is not None
    if isinstance(step, Revalue):
        ruling = race.revaluation(step, await experiments.retraction_facts(race.facts.runs[step.name]))
    else:
        ruling = race.ruling(step)
        if race.loses_largest_gain(ruling):
            ruling = without_gain(ruling, await experiments.retraction_facts(ruling.experiment))
    tag, before = race.facts.tag, ruling.experiment
    after = before.model_copy(update={**ruling.fields, "status": ruling.status})
    shift = change([(before, after)], tag.direction)
    return await experiments.judge(replace(ruling, shift=shift, growths=await _growths(ruling, tag, judging)))


async def _growths(ruling: Ruling, tag: Tag, judging: Judging) -> list[Growth]:
    """Trace updates that follow from a demotion or promotion."""
    e = ruling.experiment
    if ruling.status == e.status:
        return []
    kept = ruling.status == "keep"
    found = {t.trace_id: t for t in await judging.traces.many([e.trace_id] if e.trace_id else [])}
    bases: dict[str, Experiment | None] = {}
    if not kept:
        found |= {t.trace_id: t for t in await judging.traces.standing_on(e.tag, e.experiment_id)}
        bases = await bases_without(e, found.values(), tag, judging.experiments)
    epoch = await judging.traces.epoch(e.tag)
    return [regrown(trace, epoch, e, kept, bases.get(trace.trace_id)) for trace in found.values()]
