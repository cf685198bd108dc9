"""trace::merge selects several parents, to combine what two traces have found."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from functions.contract import Call, Command, function
from functions.trace._selecting import Selected, selected
from functions.trace._stores import Stores
from state.ids import AgentName, TraceId
from state.ids import Tag as TagName
from state.selecting import Wish


class Merge(Command):
    tag: TagName
    agent: AgentName | None = None
    into: TraceId | None = Field(None, description="the trace to extend; default: the one with the best base")
    sources: list[TraceId] = Field(
        default_factory=list,
        max_length=16,
        description="the traces to merge",
        examples=[["mar11-t1", "mar11-t3"]],
    )
    selector: Literal["explicit", "best_base", "near_miss"] | None = Field(
        None,
        description="how sources are found; default: explicit if sources are named, else best_base",
        examples=["best_base"],
    )
    wait: float = Field(0, ge=0, le=50, description="seconds to wait for a slot")

    @model_validator(mode="after")
    def _sources_are_named_or_found(self) -> Merge:
        if self.sources and self.selector not in (None, "explicit"):
            raise ValueError(f"the selector {self.selector} finds the sources: omit them")
        if self.selector == "explicit" and not self.sources:
            raise ValueError("the selector explicit needs sources")
        return self


@function("trace::merge", role="agent", writes=True, keeps_answer=False, held_for="wait")
async def merge(request: Merge, call: Call, stores: Stores) -> Selected:
    """Select several parents: the bases of two traces, or two near misses; if it is kept, the other traces end."""
    sources = [*([request.into] if request.into and request.sources else []), *request.sources]
    wish = Wish(
        tag=request.tag,
        agent=request.agent,
        owner=call.caller.owner,
        intent="merge",
        selector=request.selector or ("explicit" if sources else "best_base"),
        sources=sources,
        into=request.into,
    )
    return await selected(wish, request.wait, call.request_key("trace::merge", request), stores)
