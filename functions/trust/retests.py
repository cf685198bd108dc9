"""Runs of the same code: retests, their judgement, and results that are taken back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from functions.branches.rules.ancestry import best_of
from functions.branches.rules.forest import regrown
from functions.experiments.rules.claiming import (
    as_measured,
    check_unmeasured,
    judge_claim,
    measured_by,
    owes_run,
    run_asked_for,
    would_be_kept,
)
from functions.experiments.rules.judging import RunConditions, conditions_of
from functions.experiments.rules.reports import check_repeatable
from functions.experiments.rules.verdict import key_of, main_key
from functions.experiments.views.hints import next_step
from functions.kernel.contract import Call, Command, On, Response, function
from functions.kernel.off_loop import Children, statistics_loaded
from functions.kernel.rules.access import check_own, check_retractor
from functions.trust.certificates import check_again
from functions.trust.rules.hidden import HiddenRuns, codes_beside, look, why_not_confirmed
from functions.trust.rules.retests import Confirm, Demote, Dismiss, GiveUp, Promote, Revalue, RunAgain, Step
from functions.trust.rules.retracting import (
    RetractAnswer,
    check_retractable,
    has_fallen,
    retraction_of,
    with_growths,
)
from functions.trust.rules.ruling import Race, in_words, without_gain
from state.change import Change
from state.decisions import Ending, Growth, Retraction, Ruling
from state.derived import change
from state.errors import BudgetExhausted
from state.experiments import Experiments, Window
from state.facts import Comparison, RetestFacts, RunFacts
from state.ids import ExperimentId, digest_of, named_by
from state.ids import Tag as TagName
from state.noise import code_of
from state.records import OPEN, ChangedRun, Experiment, Tag, Trace
from state.settings import Settings
from state.tags import Tags
from state.traces import Traces
from state.trust import HiddenNumbers

log = logging.getLogger(__name__)

# -- What retests and claims are judged with: the stores as one bundle, branch bases, and the lab's runs of claims.

ANCESTORS_READ = 500
"""Ancestors that are searched for the best keep. Without one, the nearest keep above them is taken."""


@dataclass(frozen=True)
class Judging:
    experiments: Experiments
    tags: Tags
    traces: Traces
    settings: Settings
    numbers: HiddenNumbers


async def bases_without(
    e: Experiment, traces: Iterable[Trace], tag: Tag, experiments: Experiments
) -> dict[str, Experiment | None]:
    """The next base of each branch that is based on `e`, for when `e` falls; None: the tag's base."""
    return {
        t.trace_id: await _base_without(e, t, tag, experiments) for t in traces if t.base == e.experiment_id
    }


async def _base_without(e: Experiment, trace: Trace, tag: Tag, experiments: Experiments) -> Experiment | None:
    """Looks at keeps made after `e`, too: if `e` rose or was measured late, they may be worse than `e`."""
    found, is_whole = await experiments.above([trace.tip] if trace.tip else e.parent_ids, ANCESTORS_READ)
    keeps = [each for each in found if each.status == "keep" and each.experiment_id != e.experiment_id]
    best = best_of(keeps, tag.direction, main_key(tag))
    return best if best or is_whole else await experiments.base_above(e.parent_ids)


async def stop_retests(experiment_id: str, experiments: Experiments) -> Experiment:
    """Stop the open retests of an experiment that was retracted."""
    e = await experiments.get(experiment_id)
    why = f"{e.experiment_id} was retracted: {e.retracted_because}"
    [its] = await experiments.retests([e])
    for retest in its:
        if retest.status in OPEN:
            await _stop(retest.experiment_id, why, experiments)
    return e


async def _forget_hidden(e: Experiment, judging: Judging) -> None:
    """Take the numbers of a retracted experiment out of its tag's hidden split."""
    code, its = code_of(e, e.best_key), [e.experiment_id]
    its += [f"{e.experiment_id}.{nth + 2}" for nth in range(e.retests)]

    async def decide(change: Change) -> None:
        known = HiddenRuns.of(await judging.numbers.of(change, e.tag, e.gpu_class, [code]))
        if known.mean(code) is None:
            return change.idle(None)
        left = known.without(code, its).fields(code)
        return judging.numbers.keep(change, e.tag, e.gpu_class, left)

    await judging.numbers.change(decide)


async def _stop(experiment_id: str, why: str, experiments: Experiments) -> None:
    async def decide(change: Change) -> None:
        run = await experiments.run_facts(change, experiment_id)
        e = run.experiment
        if e.status not in OPEN or e.stopping:
            return change.idle(None)
        if e.status in ("leased", "running"):
            experiments.ask_to_stop(change, e, why)
        else:
            await experiments.finish(change, run, Ending(e, "stopped", {"error": why}, reason=why))
        return None

    await experiments.judging(experiment_id, decide)


async def see_to_claim(experiment_id: str, judging: Judging, *, may_run: bool = True) -> str | None:
    """Run a claim's code if a true claim would be kept, or judge the claim by that run; None: nothing to do.

    Raises:
        BudgetExhausted: its run has to wait until its tag's budget has room for it.
    """
    experiments = judging.experiments
    while (facts := await experiments.retest_facts(experiment_id)).experiment.is_claim:
        if facts.experiment.status != "discard":
            return None
        if (by := measured_by(facts)) is not None:
            if await _measure(experiment_id, by, judging):
                return f"measure {experiment_id}"
            continue
        if not may_run or not owes_run(facts) or not await _is_worth_a_run(facts, experiments):
            return None
        if await experiments.begin_retest(run_asked_for(facts)) is not None:
            return f"run {experiment_id}"
    return None


async def _measure(experiment_id: str, by: Experiment, judging: Judging) -> bool:
    """Judge a claim by the lab's run of its code; False where it is no claim any more."""
    experiments, numbers = judging.experiments, judging.numbers

    async def judged(change: Change) -> bool:
        found = await experiments.run_facts(change, experiment_id)
        if not found.experiment.is_claim or found.experiment.status != "discard":
            return change.idle(False)
        run, report = as_measured(found, by)
        under = conditions_of(report.key, run)
        beside = await _beside(change, run, under, experiments)
        if run.tag.hidden_split:
            codes = codes_beside(under, beside)
            known = await numbers.of(change, run.tag.name, under.key.gpu_class, codes)
            beside = beside._replace(hidden=look(None, run, under, beside, known).refusals)
        await experiments.finish(
            change, found, judge_claim(found.experiment, report, run, under, beside), beside
        )
        return True

    return await experiments.judging(experiment_id, judged)


async def _is_worth_a_run(facts: RetestFacts, experiments: Experiments) -> bool:
    async def judged(change: Change) -> bool:
        run = await experiments.run_facts(change, facts.experiment.experiment_id)
        under = conditions_of(key_of(run.experiment), run)
        beside = await _beside(change, run, under, experiments)
        return change.idle(would_be_kept(run, under, beside))

    return await experiments.judging(facts.experiment.experiment_id, judged)


async def _beside(
    change: Change, run: RunFacts, under: RunConditions, experiments: Experiments
) -> Comparison:
    beside = await experiments.comparison(change, run, under.key.gpu_class, under.other_key, under.code)
    if beside.noise.is_known:
        await statistics_loaded()
    return beside


class RunRetest(Command):
    experiment_id: ExperimentId
    train: bool = Field(True, description="false: its agent trains it itself, on the seed of the answer")


class RunningAgain(Response):
    experiment_id: str
    retest_id: str
    seed: int
    status: str
    wait_url: str
    next: str
    """What to do now, in a sentence."""


@function("experiment::retest", role="agent", writes=True)
async def retest(
    request: RunRetest, call: Call, experiments: Experiments, children: Children, settings: Settings
) -> RunningAgain:
    """Run the same code on its next fixed seed. The value is evidence and counts as no new experiment."""
    while True:
        facts = await experiments.retest_facts(request.experiment_id)
        e = facts.experiment
        check_own(call.caller, e.owner, e.experiment_id)
        check_repeatable(e)
        if request.train:
            check_unmeasured(facts)
        again = run_asked_for(facts, train=request.train)
        if request.train:
            await check_again(again, facts.tag, experiments, settings.clone, children)
        begun = await experiments.begin_retest(again)
        if begun is not None:
            return RunningAgain(
                experiment_id=e.experiment_id,
                retest_id=begun.experiment_id,
                seed=begun.seed or 0,
                status=begun.status,
                wait_url=f"/api/experiment/{begun.experiment_id}/wait",
                next=next_step(begun, None),
            )


NEWEST_READ = 200
"""Newest keeps that are read for a tag's comparability keys, and newest discards for its claims."""


class JudgeRetests(Command):
    tag: TagName
    experiment_ids: list[ExperimentId] = Field(
        [],
        max_length=256,
        description="judge what stands under their comparability keys; empty: the whole tag",
        examples=[["mar11-7"]],
    )


class Steps(Response):
    steps: list[str]
    """What was done, in order, such as `confirm mar11-7`."""


@function(
    "experiment::judge_retests",
    On(
        *("experiment.finished", "experiment.retesting", "experiment.retested", "experiment.retracted"),
        *("experiment.confirmed", "experiment.revalued", "experiment.demoted", "tag.budget_changed"),
        debounce="tag",
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


async def _measure_claims(concerned: list[ChangedRun | Experiment], judging: Judging) -> list[str]:
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
        if facts.noise.is_known:
            await statistics_loaded()
        race = Race(facts)
        step = race.step(may_run=may_run)
        if step is None:
            break
        step = await _borne_out(step, race, judging)
        try:
            steps += [step] if await _take(step, race, judging) else []
        except BudgetExhausted as problem:  # a result, or another budget, judges again
            log.warning("%s: no further run: %s", tag, problem.detail)
            may_run = False
    return steps


async def _borne_out(step: Step, race: Race, judging: Judging) -> Step:
    """The step, unless the hidden split of the tag does not bear out the keep that it makes."""
    facts, best = race.facts, race.facts.best
    if not facts.tag.hidden_split or not isinstance(step, Confirm | GiveUp | Promote):
        return step
    e, chain = facts.runs[step.name], [link.experiment_id for link in best.chain]
    if not isinstance(step, Promote) and e.trust not in ("provisional", "unconfirmed"):
        return step
    under = best.chain[max(0, chain.index(step.name) - 1) if step.name in chain else 0]
    codes = (under.code or "", code_of(e, e.best_key))
    known = await judging.numbers.seen(e.tag, e.gpu_class, codes)
    why = why_not_confirmed(e, under.code, under.experiment_id, known, facts.tag.direction)
    if why is None:
        return step
    return Dismiss() if isinstance(step, Promote) else Demote(step.name, why, is_hidden=True)


async def _concerned(request: JudgeRetests, judging: Judging) -> list[ChangedRun | Experiment]:
    """The named experiments with all claims that may run now, or the tag's newest keeps and claims.

    After a demotion or retraction a claim may be worth a run. After each run the budget may have room for a claim.
    """
    experiments = judging.experiments
    if not request.experiment_ids:
        keeps = await experiments.by_number(request.tag, "keep", NEWEST_READ)
        return [*keeps, *await experiments.claims(request.tag, NEWEST_READ)]
    names = list(dict.fromkeys(named_by(i)[0] for i in request.experiment_ids))
    tag, found = await experiments.changed(request.tag, names)
    for name in [run.experiment_id for run in found if run.status == "retracted"]:
        e = await stop_retests(name, experiments)
        if tag.hidden_split:
            await _forget_hidden(e, judging)
    if any(map(has_fallen, found)) or (tag.takes_claims and tag.has_budget):
        return [*found, *await experiments.claims(request.tag, NEWEST_READ)]
    return [*found]


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
            await stop_retests(e.experiment_id, experiments)
            return Retracted(**said["answer"], replayed=True)
        check_retractable(e)
        facts = await experiments.retraction_facts(e)
        if facts.experiment != e:
            continue  # its retests have changed what it is
        if facts.noise.is_known:
            await statistics_loaded()
        retraction = await _grown(retraction_of(facts, request.reason, digest), judging)
        if await experiments.retract(retraction):
            await stop_retests(e.experiment_id, experiments)
            return Retracted(**retraction.fields["retraction"]["answer"])


async def _grown(retraction: Retraction, judging: Judging) -> Retraction:
    """The retraction with its changes of traces."""
    e, traces = retraction.facts.experiment, judging.traces
    scored = [e, *(now for _, now in retraction.changed)]
    names = list(dict.fromkeys(run.trace_id for run in scored if run.trace_id))
    own, standing, epoch = await asyncio.gather(
        traces.many(names), traces.standing_on(e.tag, e.experiment_id), traces.epoch(e.tag)
    )
    pages = [await judging.experiments.page(Window(e.tag, NODES_READ, trace_id=t.trace_id)) for t in own]
    nodes = {t.trace_id: page.experiments for t, page in zip(own, pages, strict=True)}
    found = {t.trace_id: t for t in (*standing, *own)}
    bases = await bases_without(e, found.values(), retraction.facts.tag, judging.experiments)
    return with_growths(retraction, found.values(), nodes, bases, epoch)
