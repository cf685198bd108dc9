"""experiment::retest runs an experiment's code once more on another seed, as evidence."""

from __future__ import annotations

from pydantic import Field

from functions.children import Children
from functions.contract import Call, Command, Response, function
from functions.experiment._clone import Code, check_trainable
from functions.rules.access import check_own
from functions.rules.entering import scripts_of_run
from functions.rules.keeps.claiming import check_unmeasured, run_asked_for
from functions.rules.keeps.reports import check_repeatable
from functions.views.hints import next_step
from state.experiments import Experiments
from state.ids import ExperimentId
from state.settings import Settings


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
            slots = (await experiments.train_facts(e.experiment_id)).slots
            scripts = scripts_of_run(slots, (), again.pinned_gpu)
            code = Code(e.commit_sha, facts.tag.base_commit, None, {}, again.seed, scripts)
            await check_trainable(settings.clone, children, code)
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
