"""agent::announce says how an agent is that `nightjar agent` has at work."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from functions.contract import Call, Request, Response, function
from state.errors import Conflict
from state.ids import AgentName
from state.ids import Tag as TagName
from state.presence import FORGOTTEN_S, Presence

MOST = 256
"""Agents that are remembered at once: whoever looks at the lab reads all of them."""

Count = Annotated[int, Field(ge=0, le=10**15)]


class Announce(Request):
    tag: TagName
    agent: AgentName
    state: Literal["starting", "working", "waiting", "ended"] = Field(
        description="waiting: until it is started again", examples=["working"]
    )
    starts: Count = Field(0, description="how often its process was started", examples=[1])
    experiments: Count = Field(0, description="experiments of its own that were seen", examples=[7])
    tokens: Count | None = Field(
        None, description="that it has used, where its tool prints them", examples=[120000]
    )
    cost_usd: Annotated[float, Field(ge=0, le=1e9)] | None = Field(
        None, description="what they have cost, where its tool prints that", examples=[1.25]
    )


class Announced(Response):
    tag: str
    agent: str
    state: str


@function("agent::announce", role="agent", writes=True, keeps_answer=False)
async def announce(request: Announce, call: Call, presence: Presence) -> Announced:
    """Show an agent in lab::status for a minute, or take it out; it decides nothing."""
    name = f"agent@{call.caller.owner or ''}/{request.tag}/{request.agent}"
    answer = Announced(tag=request.tag, agent=request.agent, state=request.state)
    if request.state == "ended":
        await presence.leave(name)
        return answer
    others = [p for p in await presence.alive(FORGOTTEN_S) if p.facts.get("kind") == "agent"]
    if len(others) >= MOST and name not in {p.name for p in others}:
        raise Conflict(
            f"{len(others)} agents are announced already",
            hint="it may work unannounced; those that are silent for an hour are forgotten",
        )
    await presence.announce(name, {"kind": "agent", **request.model_dump(exclude={"request_id"})})
    return answer
