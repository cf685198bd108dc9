"""pipeline::spec is the programme that is drafted for the next batch of runs."""

from __future__ import annotations

from functions.contract import Http, Request, Text, function


class ReadDraft(Request):
    """Nothing to say."""


@function("pipeline::spec", Http("GET", "/pipeline/spec"), role="viewer", is_public=True)
async def spec(request: ReadDraft) -> Text | None:
    """The draft's text; 204 while there is none."""
    return None
