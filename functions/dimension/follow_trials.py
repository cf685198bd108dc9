"""dimension::follow_trials has proposed dimensions tried, kept or removed, by what a tag's results say."""

from __future__ import annotations

from functions.contract import Command, On, Response, function
from functions.rules.swarm.canaries.trials import followed
from state.dimension_proposals import DimensionProposals
from state.ids import Tag as TagName


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
async def follow_trials(request: FollowTrials, proposals: DimensionProposals) -> FollowedTrials:
    """Begin and end the trials of proposed dimensions, and ask for further ones where the search stalls.

    Safe to run twice.
    """
    while True:
        facts = await proposals.facts(request.tag)
        after = followed(facts, await proposals.ran(facts))
        if after is None or await proposals.follow(facts, after):
            told = {} if after is None else after.told
            return FollowedTrials(
                adopted=[*told.get("dimension.adopted", ())],
                promoted=[*told.get("dimension.promoted", ())],
                reverted=[*told.get("dimension.reverted", ())],
                wanted=after is not None and after.wanted is not None,
            )
