"""trace::select chooses what one experiment is made from, as a lease."""

from __future__ import annotations

from pydantic import Field, model_validator

from functions.contract import Call, Command, function
from functions.plugins import Schedulers
from functions.trace._choosing import Chooser, Intent, Selected, Waiting, Wish, answered, request_key
from functions.trace._nodes import parents_of
from state.experiments import Experiments
from state.ids import Id
from state.ids import Tag as TagName
from state.policies import Policies
from state.pool import Pool
from state.records import Selection
from state.settings import Settings
from state.tags import Tags
from state.traces import Traces
from state.wakeups import Wakeups


class Select(Command):
    tag: TagName
    agent: Id | None = None
    intent: Intent = Field("auto", description="auto opens traces up to target_traces, then extends one")
    trace_id: Id | None = Field(None, description="extend this trace")
    parent_ids: list[Id] = Field(
        default_factory=list, max_length=16, description="build on these; several are a merge"
    )
    include_context: bool = Field(False, description="answer trace::context with it")
    wait: float = Field(0, ge=0, le=50, description="seconds to wait for a slot")

    @model_validator(mode="after")
    def _one_wish(self) -> Select:
        if self.trace_id is not None and (self.parent_ids or self.intent not in ("auto", "extend")):
            raise ValueError(
                "trace_id extends that trace: leave parent_ids out, and intent at auto or extend"
            )
        if self.parent_ids and self.intent == "new_root":
            raise ValueError("a new root has no parents: leave parent_ids out")
        if len(set(self.parent_ids)) > 1 and self.intent not in ("auto", "merge"):
            raise ValueError("several parent_ids are a merge: leave intent at auto or merge")
        return self


@function("trace::select", role="agent", writes=True, keeps_answer=False)
async def select(
    request: Select,
    call: Call,
    tags: Tags,
    policies: Policies,
    experiments: Experiments,
    traces: Traces,
    pool: Pool,
    schedulers: Schedulers,
    wakeups: Wakeups,
    settings: Settings,
) -> Selected:
    """Choose the trace and parents of one experiment, as a lease; without a free slot, `wait` and no idea."""
    tag = await tags.get(request.tag)
    asked = request_key("trace::select", request, call)
    found: Selection | Waiting | None = await traces.first_answer(asked) if asked is not None else None
    if found is None:
        chooser = Chooser(tags, policies, experiments, traces, pool, schedulers, wakeups, settings)
        parents = await parents_of(request.tag, request.parent_ids, experiments)
        wish = Wish(
            tag=request.tag,
            agent=request.agent,
            intent="merge" if len(parents) > 1 else request.intent,
            trace_id=request.trace_id,
            parents=parents,
            selector="nodes" if request.parent_ids else "best_base",
            wait=request.wait,
        )
        found = await chooser.choose(wish, call, asked)
    if isinstance(found, Waiting) or not request.include_context:
        return answered(found, tag)
    told = await call.invoke("trace::context", {"tag": request.tag, "selection_id": found.selection_id})
    return answered(found, tag).model_copy(update={"context": told})
