"""What the lab does with an agent's claim: run its code, and judge the experiment by that run."""

from __future__ import annotations

from functions.experiment._judging import Judging
from functions.experiment._reports import statistics_loaded
from functions.rules.keeps.claiming import (
    as_measured,
    judge_claim,
    key_of,
    measured_by,
    owes_run,
    run_asked_for,
    would_be_kept,
)
from functions.rules.keeps.judging import Conditions, conditions_of
from state.experiments import Experiments
from state.facts import Comparison, RetestFacts, RunFacts


async def see_to_claim(experiment_id: str, judging: Judging, *, may_run: bool = True) -> str | None:
    """Run a claim's code where it would be kept if it were true, or judge it by that run; None: nothing to do.

    Raises:
        BudgetExhausted: its run has to wait until its tag's budget has room for it.
    """
    experiments = judging.experiments
    while (facts := await experiments.retest_facts(experiment_id)).experiment.is_claim:
        if facts.experiment.status != "discard":
            return None
        if (by := measured_by(facts)) is not None:
            run, report = as_measured(await experiments.run_facts(experiment_id), by)
            under = conditions_of(report.key, run)
            beside = await _beside(run, under, experiments)
            ending = judge_claim(facts.experiment, report, run, under, beside)
            if await experiments.end(ending):
                return f"measure {experiment_id}"
            continue
        if not may_run or not owes_run(facts) or not await _is_worth_a_run(facts, experiments):
            return None
        if await experiments.begin_retest(run_asked_for(facts)) is not None:
            return f"run {experiment_id}"
    return None


async def _is_worth_a_run(facts: RetestFacts, experiments: Experiments) -> bool:
    run = await experiments.run_facts(facts.experiment.experiment_id)
    under = conditions_of(key_of(run.experiment), run)
    beside = await _beside(run, under, experiments)
    return would_be_kept(run, under, beside)


async def _beside(run: RunFacts, under: Conditions, experiments: Experiments) -> Comparison:
    beside = await experiments.comparison(run, under.key.gpu_class, under.other_key, under.code)
    await statistics_loaded(beside.noise)
    return beside
