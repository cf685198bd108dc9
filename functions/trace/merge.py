"""trace::merge selects several parents at once: what two traces have found is brought together."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from functions.contract import Call, Command, function
from functions.plugins import Schedulers
from functions.trace._choosing import Chooser, Selected, Wish, answered, request_key
from state.experiments import Experiments
from state.ids import Id
from state.ids import Tag as TagName
from state.policies import Policies
from state.pool import Pool
from state.settings import Settings
from state.tags import Tags
from state.traces import Traces
from state.wakeups import Wakeups


class Merge(Command):
    tag: TagName
    agent: Id | None = None
    into: Id | None = Field(None, description="the trace that goes on; default: that of the best")
    sources: list[Id] = Field(default_factory=list, max_length=16, description="the traces to merge")
    selector: Literal["explicit", "best_base", "near_miss"] | None = Field(
        None, description="default: explicit where sources are named, else best_base"
    )
    wait: float = Field(0, ge=0, le=50, description="seconds to wait for a slot")

    @model_validator(mode="after")
    def _sources_are_named_or_found(self) -> Merge:
        if self.sources and self.selector not in (None, "explicit"):
            raise ValueError(f"the selector {self.selector} finds the sources: leave them out")
        if self.selector == "explicit" and not self.sources:
            raise ValueError("an explicit merge names its sources")
        return self


@function("trace::merge", role="agent", writes=True, keeps_answer=False)
async def merge(
    request: Merge,
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
    """Select several parents: two traces with their bases, or two near misses; if it is kept, the others end."""
    tag = await tags.get(request.tag)
    asked = request_key("trace::merge", request, call)
    if asked is not None and (first := await traces.first_answer(asked)) is not None:
        return answered(first, tag)
    sources = [*([request.into] if request.into and request.sources else []), *request.sources]
    chooser = Chooser(tags, policies, experiments, traces, pool, schedulers, wakeups, settings)
    wish = Wish(
        tag=request.tag,
        agent=request.agent,
        intent="merge",
        selector=request.selector or ("explicit" if sources else "best_base"),
        sources=sources,
        into=request.into,
        wait=request.wait,
    )
    return answered(await chooser.choose(wish, call, asked), tag)
