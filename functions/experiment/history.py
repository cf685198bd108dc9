"""experiment::history pages through a tag's experiments by index."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from functions.contract import Call, Category, Request, Response, function
from functions.rules.keeps.gains import gain_of, is_compared
from functions.views.experiments import ExperimentView
from state.experiments import PAGE_BYTES, Experiments, Page, Window
from state.facts import Runs
from state.ids import Tag, TraceId
from state.records import Status

TOOL_BYTES = 64 * 1024
"""Of a page for a tool's caller: a language model reads all of it, and its clients cut longer answers."""


class ListHistory(Request):
    tag: Tag
    status: Status | None = Field(None, description="only those of this status", examples=["keep"])
    category: Category | None = Field(None, description="only those of this category", examples=["optimizer"])
    trace_id: TraceId | None = Field(None, description="only those that were made for this trace")
    limit: int = Field(
        50, ge=1, le=1000, description="most experiments that are answered; fewer where they are long"
    )
    cursor: Annotated[int, Field(ge=0)] | None = Field(
        None, description="next_cursor of the page before", examples=[40]
    )
    order: Literal["newest", "oldest"] = Field(
        "newest", description="which end to begin at; every page is oldest first"
    )


class HistoryPage(Response):
    experiments: list[ExperimentView]
    gains: dict[str, float]
    """By id: the gain over the best that it was compared with, on the same seeds; above zero is better."""
    total: int
    next_cursor: int | None


@function("experiment::history", role="viewer")
async def history(request: ListHistory, call: Call, experiments: Experiments) -> HistoryPage:
    """The last `limit` experiments, oldest first; `next_cursor` leads to those before them."""
    window = Window(
        request.tag,
        request.limit,
        status=request.status,
        category=request.category,
        trace_id=request.trace_id,
        cursor=request.cursor,
        newest=request.order == "newest",
        most_bytes=TOOL_BYTES if call.trigger == "mcp" else PAGE_BYTES,
    )
    page = await experiments.history(ExperimentView, window)
    return HistoryPage(
        experiments=page.experiments,
        gains=await _gains(page, experiments),
        total=page.total,
        next_cursor=page.following,
    )


async def _gains(page: Page[ExperimentView], experiments: Experiments) -> dict[str, float]:
    """The gain of each experiment that can be compared; one round trip at most."""
    compared = [e for e in page.experiments if is_compared(e)]
    names = {e.compared_with for e in compared if e.compared_with is not None}
    names.update(e.experiment_id for e in compared if e.retests)
    known = await experiments.runs(sorted(names))
    gains: dict[str, float] = {}
    for e in compared:
        own, best = known.get(e.experiment_id, Runs(e)), known.get(e.compared_with or "")
        gain = gain_of(e, own, best, page.direction)
        if gain is not None:
            gains[e.experiment_id] = gain.by
    return gains
