"""hypothesis::shadow_scorecards lets the published dashboard load; Nightjar has no shadow hypotheses."""

from __future__ import annotations

from functions.contract import Http, Response, function
from functions.of_swarm import OfSwarm


class ReadScorecards(OfSwarm):
    """No field but the tag."""


class Scorecards(Response):
    scorecards: list[str]


@function("hypothesis::shadow_scorecards", Http("GET", "/shadow/scorecards"), role="viewer", is_public=True)
async def shadow_scorecards(request: ReadScorecards) -> Scorecards:
    """Always empty: the published dashboard asks for it, and Nightjar has no shadow hypotheses."""
    return Scorecards(scorecards=[])
