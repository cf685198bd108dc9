"""trace::select leases the trace and parents of one experiment."""

from __future__ import annotations

from pydantic import Field, model_validator

from functions.contract import Call, Command, function
from functions.trace._selecting import Selected, selected
from functions.trace._stores import Stores
from state.ids import AgentName, ExperimentId, TraceId
from state.ids import Tag as TagName
from state.selecting import Intent, Wish


class Select(Command):
    tag: TagName
    agent: AgentName | None = None
    intent: Intent = Field("auto", description="auto opens traces up to target_traces, then extends one")
    trace_id: TraceId | None = Field(None, description="extend this trace")
    parent_ids: list[ExperimentId] = Field(
        default_factory=list,
        max_length=16,
        description="build on these experiments; several: a merge",
        examples=[["mar11-41"]],
    )
    include_context: bool = Field(False, description="also answer trace::context")
    wait: float = Field(0, ge=0, le=50, description="seconds to wait for a slot")

    @model_validator(mode="after")
    def _one_wish(self) -> Select:
        if self.trace_id is not None and (self.parent_ids or self.intent not in ("auto", "extend")):
            raise ValueError("trace_id extends that trace: omit parent_ids, and let intent be auto or extend")
        if self.parent_ids and self.intent == "new_root":
            raise ValueError("a new root has no parents: omit parent_ids")
        if len(set(self.parent_ids)) > 1 and self.intent not in ("auto", "merge"):
            raise ValueError("several parent_ids are a merge: let intent be auto or merge")
        return self


@function("trace::select", role="agent", writes=True, keeps_answer=False, held_for="wait")
async def select(request: Select, call: Call, stores: Stores) -> Selected:
    """Lease the trace and parents of one experiment; if there is no free slot, the status is `wait`."""
    parents = list(dict.fromkeys(request.parent_ids))
    wish = Wish(
        tag=request.tag,
        agent=request.agent,
        owner=call.caller.owner,
        intent="merge" if len(parents) > 1 else request.intent,
        trace_id=request.trace_id,
        parent_ids=parents,
        selector="nodes" if parents else "best_base",
    )
    found = await selected(wish, request.wait, call.request_key("trace::select", request), stores)
    if found.selection_id is None or not request.include_context:
        return found
    told = await call.invoke("trace::context", {"tag": request.tag, "selection_id": found.selection_id})
    return found.model_copy(update={"context": told})
