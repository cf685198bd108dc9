"""pool::announce shows a process of a worker among the lab's processes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from functions.contract import Call, Request, Response, function
from state.errors import Conflict
from state.presence import FORGOTTEN_S, Presence

MOST = 128
"""Most processes that a token's owner has announced at once: 64 GPUs, and a supervisor for each."""

Line = Annotated[str, Field(max_length=2000)]


class WorkerProcess(Request):
    name: Annotated[str, Field(pattern=r"^(supervisor|keeper)@[^:/]{1,100}:[0-9]{1,10}$")] = Field(
        description="<kind>@<host>:<pid>", examples=["keeper@node1:4711"]
    )
    kind: Literal["supervisor", "keeper"]
    host: Line
    pid: int
    ended: bool = Field(False, description="whether it ends now: then it is forgotten")
    slots: int | None = Field(None, description="a supervisor's GPUs and CPU slots")
    gpu_id: Line | None = Field(None, description="a keeper's")
    repo: Line | None = Field(None, description="the project that it trains")
    repository_head: Line | None = Field(
        None, description="that project's newest commit; taken from the lab's own workers alone"
    )
    training: Line | None = Field(None, description="what it trains with and on, for people")
    isolation: Line | None = Field(None, description="how far its runs are kept from its machine")
    no_stronger_isolation: Line | None = Field(None, description="why no stronger isolation works there")
    warnings: list[Line] = Field(
        default_factory=list, max_length=32, description="what its owner should know"
    )


class WorkerShown(Response):
    name: str


@function("pool::announce", role="worker", writes=True, keeps_answer=False)
async def announce(request: WorkerProcess, call: Call, presence: Presence) -> WorkerShown:
    """Show a worker's process in lab::status for a minute, or take it out. Decides nothing."""
    owner = call.caller.owner
    name = request.name if owner is None else f"{request.name}/{owner}"
    if request.ended:
        await presence.leave(name)
        return WorkerShown(name=name)
    facts = request.model_dump(exclude={"name", "ended"}, exclude_unset=True)
    if owner is not None:
        facts.pop("repository_head", None)
        its = {p.name for p in await presence.alive(FORGOTTEN_S) if p.name.endswith(f"/{owner}")}
        if len(its) >= MOST and name not in its:
            raise Conflict(
                f"{len(its)} processes of {owner!r} are announced already",
                hint="it may work unannounced; those that are silent for an hour are forgotten",
            )
    await presence.announce(name, facts)
    return WorkerShown(name=name)
