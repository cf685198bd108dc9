"""experiment::history pages through a tag's experiments by index."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from functions.contract import Category, Request, Response, function
from functions.views.experiments import View, view
from state.experiments import Experiments
from state.ids import Tag
from state.records import Status
from state.tags import Tags


class History(Request):
    tag: Tag
    status: Status | None = None
    category: Category | None = None
    limit: int = Field(50, ge=1, le=1000)
    cursor: Annotated[int, Field(ge=0)] | None = Field(None, description="next_cursor of the page before")
    order: Literal["newest", "oldest"] = Field(
        "newest", description="which end to begin at; every page is oldest first"
    )


class HistoryPage(Response):
    experiments: list[View]
    total: int
    next_cursor: int | None


@function("experiment::history", role="viewer")
async def history(request: History, tags: Tags, experiments: Experiments) -> HistoryPage:
    """The last `limit` experiments, oldest first; `next_cursor` leads to those before them."""
    await tags.get(request.tag)
    newest = request.order == "newest"
    found, total, following = await experiments.page(
        request.tag,
        status=request.status,
        category=request.category,
        limit=request.limit,
        below=request.cursor if newest else None,
        above=None if newest else request.cursor,
        newest=newest,
    )
    return HistoryPage(experiments=[view(e) for e in found], total=total, next_cursor=following)
