"""report::progress gives the familiar plot: every run a dot, the running best as a step line."""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import Field

from functions.contract import Http, Picture, Request, function
from functions.report._plot import draw_progress
from functions.views.progress import points, window
from state.ids import Tag
from state.reports import Reports

MOST_RUNS = 10_000


class DrawProgress(Request):
    tag: Tag
    format: Literal["png", "svg"] = Field("png", description="of the picture")


@function("report::progress", Http("GET", "/api/report/progress.{format}"), role="viewer")
async def progress(request: DrawProgress, reports: Reports) -> Picture:
    """A tag's progress plot as PNG or SVG; of very long tags the newest 10,000 runs."""
    tag, results = await reports.results(request.tag, MOST_RUNS)
    found = points(results, tag.direction)
    title = f"{tag.name}: {tag.total} experiments, {tag.kept} kept"
    # Drawing takes some tenths of a second: never on the event loop.
    content = await asyncio.to_thread(
        draw_progress, found, window(found, tag.direction), title, tag.metric, request.format
    )
    media = "image/png" if request.format == "png" else "image/svg+xml"
    return Picture(media_type=media, content=content)
