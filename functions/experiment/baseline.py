"""experiment::baseline runs the base commit's own code, before anything else that the lab trains."""

from __future__ import annotations

from functions.contract import Call, Command, Response, function
from functions.rules.baselines import SYSTEM, baseline_of, owes_baseline
from functions.rules.entering import admitted, run_of
from state.change import Change
from state.decisions import RETEST_PRIORITY
from state.entries import Entered
from state.experiments import Experiments, line_of
from state.ids import Tag
from state.patches import packed
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
    _, patch = await packed(NO_CHANGE)

    async def decide(change: Change) -> tuple[str | None, Entered | None]:
        facts = await experiments.entry_facts(change, baseline_of(request.tag, ""), None, to_train=True)
        if not owes_baseline(facts.tag, facts.policy):
            return change.idle((facts.tag.baseline_id, None))
        entry = admitted(baseline_of(request.tag, facts.tag.base_commit or ""), facts, call.caller)
        run = run_of(facts.policy, priority=RETEST_PRIORITY)
        return None, await experiments.submit(change, entry, facts, patch, None, run, (), is_baseline=True)

    baseline_id, new = await experiments.change(decide, in_turn=line_of(SYSTEM))
    return BaselineSubmitted(baseline_id=new.experiment_id if new else baseline_id, submitted=new is not None)
