"""experiment::baseline runs the base commit's own code, before anything else that the lab trains."""

from __future__ import annotations

from functions.contract import Call, Command, Response, function
from functions.rules.baselines import baseline_of, owes_baseline
from functions.rules.entering import admitted, run_of
from functions.rules.pool.lending import next_turn
from state.decisions import RETEST_PRIORITY
from state.entries import WaitQueue
from state.experiments import Experiments
from state.ids import Tag
from state.records import NO_CHANGE


class SubmitBaseline(Command):
    tag: Tag


class BaselineSubmitted(Response):
    baseline_id: str | None
    """Null where the tag needs none: runs of it have finished, or its policy says `baseline_first: false`."""
    submitted: bool
    """By this request."""


@function("experiment::baseline", role="agent", writes=True)
async def baseline(request: SubmitBaseline, call: Call, experiments: Experiments) -> BaselineSubmitted:
    """Submit the tag's baseline, unless it has one or needs none; the first submit of a tag does it by itself."""
    while True:
        facts = await experiments.entry_facts(baseline_of(request.tag, ""), None, to_train=True)
        if not owes_baseline(facts.tag, facts.policy):
            return BaselineSubmitted(baseline_id=facts.tag.baseline_id, submitted=False)
        entry = admitted(baseline_of(request.tag, facts.tag.base_commit or ""), facts, call.caller)
        run = run_of(facts.policy, priority=RETEST_PRIORITY)
        waits = WaitQueue(facts.rounds, (), paused=facts.tag.paused_at is not None, waiting=facts.waiting)
        new = await experiments.submit(entry, NO_CHANGE, None, run, waits, next_turn, is_baseline=True)
        if new is not None:
            return BaselineSubmitted(baseline_id=new.experiment_id, submitted=True)
