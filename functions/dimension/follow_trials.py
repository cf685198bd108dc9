"""dimension::follow_trials has proposed dimensions tried, kept or removed, by what a tag's results say."""

from __future__ import annotations

import logging

from functions.contract import Command, On, Response, function
from functions.rules.keeps.ruling import retest_of
from functions.rules.swarm.canaries.judging import needs_repeat
from functions.rules.swarm.canaries.trials import followed, to_repeat
from state.change import Change
from state.dimension_proposals import DimensionProposals
from state.errors import BudgetExhausted
from state.experiments import Experiments
from state.facts import RetestFacts
from state.ids import Tag as TagName

log = logging.getLogger(__name__)


class FollowTrials(Command):
    tag: TagName


class FollowedTrials(Response):
    adopted: list[str]
    """Dimensions that are on trial now."""
    promoted: list[str]
    reverted: list[str]
    wanted: bool
    """Further dimensions are asked for."""


@function(
    "dimension::follow_trials",
    On(
        "experiment.finished",
        "experiment.retested",
        "dimension.proposed",
        "dimension.defined",
        debounce="tag",
    ),
    role="operator",
    writes=True,
    keeps_answer=False,
)
async def follow_trials(
    request: FollowTrials, proposals: DimensionProposals, experiments: Experiments
) -> FollowedTrials:
    """Begin and end the trials of proposed dimensions, and ask for further ones where the search stalls.

    The runs that decide a trial are run again. Safe to run twice.
    """

    async def decide(change: Change) -> FollowedTrials:
        facts = await proposals.facts(request.tag, change)
        ran = await proposals.ran(facts)
        repeated = {name: await _run_again(name, experiments) for name in to_repeat(facts, ran)}
        after = followed(facts, ran, repeated)
        if after is None:
            return change.idle(FollowedTrials(adopted=[], promoted=[], reverted=[], wanted=False))
        proposals.follow(change, request.tag, after)
        return FollowedTrials(
            adopted=[*after.told.get("dimension.adopted", ())],
            promoted=[*after.told.get("dimension.promoted", ())],
            reverted=[*after.told.get("dimension.reverted", ())],
            wanted=after.wanted is not None,
        )

    return await proposals.change(decide, in_turn=request.tag)


async def _run_again(name: str, experiments: Experiments) -> RetestFacts:
    """A run with its further runs, once none is needs_repeat or there is no room for another."""
    while True:
        found = await experiments.retest_facts(name)
        if not needs_repeat(found):
            return found
        try:
            await experiments.begin_retest(retest_of(found.experiment, found.retests, found.policy))
        except BudgetExhausted as problem:  # the next result looks again
            log.warning("%s is not run again: %s", name, problem.detail)
            return found
