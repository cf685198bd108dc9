"""experiment::history pages through a tag's experiments by index."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, PrivateAttr
from pydantic.config import JsonDict

from functions.contract import Call, Category, Request, Response, function
from functions.rules.keeps.gains import gains_of
from functions.views.experiments import ExperimentView, in_few_words
from state.errors import Invalid
from state.experiments import PAGE_BYTES, Experiments, Window
from state.ids import Tag, TraceId
from state.records import Sketch, Status

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
    fields: list[str] | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="only these fields of each experiment; default: all, for MCP those of the brief",
        examples=[["experiment_id", "status", "val_bpb"]],
    )
    order: Literal["newest", "oldest"] = Field(
        "newest", description="which end to begin at; every page is oldest first"
    )


def _without_required(schema: JsonDict) -> None:
    del schema["required"]


class ListedExperiment(ExperimentView):
    """An experiment with every field, or with the `fields` that were asked for."""

    model_config = ConfigDict(json_schema_extra=_without_required)


SHOWN = frozenset(name for name, field in ListedExperiment.model_fields.items() if not field.exclude)
"""Fields of an experiment in an answer."""


class HistoryPage(Response):
    experiments: list[ListedExperiment]
    gains: dict[str, float]
    """By id: the gain over the best that it was compared with, on the same seeds; above zero is better."""
    total: int
    next_cursor: int | None

    _fields: Collection[str] | None = PrivateAttr(None)
    _is_short: bool = PrivateAttr(default=False)

    def by(self, fields: Collection[str], *, is_short: bool = False) -> Self:
        """The same with these fields of each experiment alone; `is_short`: without those that say nothing."""
        page = self.model_copy()
        page._fields, page._is_short = fields, is_short
        return page

    def as_json(self) -> bytes:
        """Its JSON."""
        if self._fields is None:
            return super().as_json()
        of_each = {"__all__": set(self._fields)}
        shown = {name: name != "experiments" or of_each for name in type(self).model_fields}
        return self.model_dump_json(include=shown, exclude_defaults=self._is_short).encode()


@function("experiment::history", role="viewer")
async def history(request: ListHistory, call: Call, experiments: Experiments) -> HistoryPage:
    """The last `limit` experiments, oldest first; `next_cursor` leads to those before them."""
    by_mcp, fields = call.trigger == "mcp", request.fields
    if unknown := set(fields or ()) - SHOWN:
        raise Invalid(
            f"experiments have no field {', '.join(map(repr, sorted(unknown)))}",
            hint=f"agents use {', '.join(Sketch.FOR_AGENTS)}; GET /api/experiment/{{experiment_id}} shows all",
        )
    window = Window(
        request.tag,
        request.limit,
        status=request.status,
        category=request.category,
        trace_id=request.trace_id,
        cursor=request.cursor,
        newest=request.order == "newest",
        most_bytes=TOOL_BYTES if by_mcp else PAGE_BYTES,
    )
    found = await experiments.history(ListedExperiment, window)
    known = await experiments.beside(found.experiments)
    page = HistoryPage(
        experiments=found.experiments,
        gains=gains_of(found.experiments, known, found.direction),
        total=found.total,
        next_cursor=found.following,
    )
    if fields is not None:
        return page.by(fields)
    if by_mcp:
        few = [e.model_copy(update=in_few_words(e)) for e in found.experiments]
        return page.model_copy(update={"experiments": few}).by(Sketch.FOR_AGENTS, is_short=True)
    return page
