"""Requests about a swarm: they name its tag, or mean the lab's own."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Request
from state.ids import Tag
from state.settings import Settings


class OfSwarm(Request):
    """A request about one swarm."""

    tag: Tag | None = Field(None, description="the tag; default: NIGHTJAR_SWARM_TAG", examples=["swarm"])

    def tag_in(self, settings: Settings) -> str:
        """The tag that it is about."""
        return self.tag or settings.swarm_tag
