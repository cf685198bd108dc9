"""What retests and claims are judged with: the stores as one bundle, branch bases, and the lab's runs of claims."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from functions.experiment._reports import statistics_loaded
from functions.rules.branches.ancestry import best_of
from functions.rules.keeps.claiming import (
    as_measured,
    judge_claim,
    measured_by,
    owes_run,
    run_asked_for,
    would_be_kept,
)
from functions.rules.keeps.judging import RunConditions, conditions_of
from functions.rules.keeps.verdict import key_of, main_key
from state.change import Change
from state.decisions import Ending
from state.experiments import Experiments
from state.facts import Comparison, RetestFacts, RunFacts
from state.records import OPEN, Experiment, Tag, Trace
from state.settings import Settings
from state.tags import Tags
from state.traces import Traces

ANCESTORS_READ = 500
"""Ancestors that are searched for the best keep. Without one, the nearest keep above them is taken."""


@dataclass(frozen=True)
class Judging:
    """The stores that retests are judged with."""

    experiments: Experiments
    tags: Tags
    traces: Traces
    settings: Settings


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


async def stop_retests(e: Experiment, experiments: Experiments) -> None:
    """Stop the open retests of a retracted experiment."""
    e = await experiments.get(e.experiment_id)
    why = f"{e.experiment_id} was retracted: {e.retracted_because}"
    [its] = await experiments.retests([e])
    for retest in its:
        if retest.status in OPEN:
            await _stop(retest.experiment_id, why, experiments)


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
            if await _measure(experiment_id, by, experiments):
                return f"measure {experiment_id}"
            continue
        if not may_run or not owes_run(facts) or not await _is_worth_a_run(facts, experiments):
            return None
        if await experiments.begin_retest(run_asked_for(facts)) is not None:
            return f"run {experiment_id}"
    return None


async def _measure(experiment_id: str, by: Experiment, experiments: Experiments) -> bool:
    """Judge a claim by the lab's run of its code; False where it is no claim any more."""

    async def judged(change: Change) -> bool:
        found = await experiments.run_facts(change, experiment_id)
        if not found.experiment.is_claim or found.experiment.status != "discard":
            return change.idle(False)
        run, report = as_measured(found, by)
        under = conditions_of(report.key, run)
        beside = await _beside(change, run, under, experiments)
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
    await statistics_loaded(beside.noise)
    return beside
