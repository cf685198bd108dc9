"""agent::announce shows the state of an agent under `nightjar agent`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from functions.kernel.contract import Call, Request, Response, function
from state.errors import Conflict
from state.ids import AgentName
from state.ids import Tag as TagName
from state.presence import FORGOTTEN_S, Presence
from state.records import AgentLimit

MOST = 256
"""Most agents that are shown at once."""

Second = Annotated[int, Field(ge=0, le=10**11)]
Count = Annotated[int, Field(ge=0, le=10**15)]


class MetLimit(Request):
    """A usage limit that an agent has met."""

    since: Second = Field(description="when it met the limit, in seconds since 1970", examples=[1795755600])
    until: Second = Field(description="when it is started again", examples=[1795759200])
    said: Annotated[str, Field(max_length=300)] = Field(
        description="the line that it printed", examples=["usage limit reached, resets 3am"]
    )


class Announce(Request):
    tag: TagName
    agent: AgentName
    state: Literal["starting", "working", "waiting", "limited", "ended"] = Field(
        description="waiting: until it is started again; limited: the same, after a usage limit",
        examples=["working"],
    )
    limit: MetLimit | None = Field(
        None,
        description="the limit that a limited agent has met",
        examples=[{"since": 1795755600, "until": 1795759200, "said": "usage limit reached, resets 3am"}],
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
    """Show an agent in lab::status for a minute, or take it out; a new usage limit is an event. Decides nothing."""
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
    if request.limit is not None:
        await presence.limit(request.tag, AgentLimit(agent=request.agent, **vars(request.limit)))
    await presence.announce(name, {"kind": "agent", **request.model_dump()})
    return answer
