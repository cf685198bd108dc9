"""report::progress gives the familiar plot: every run a dot, the running best as a step line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from functions.contract import Http, Picture, Request, function
from functions.drawings import Drawings
from functions.report._plot import draw_progress
from functions.views.progress import crashes, points, thinned, window
from state.ids import Tag
from state.records import Result
from state.records import Tag as TagRecord
from state.reports import Reports

MOST_RUNS = 10_000


class DrawProgress(Request):
    tag: Tag
    format: Literal["png", "svg"] = Field("png", description="of the picture")


@function("report::progress", Http("GET", "/api/report/progress.{format}"), role="viewer", costly=True)
async def progress(request: DrawProgress, reports: Reports, drawings: Drawings) -> Picture:
    """A tag's progress plot as PNG or SVG; of very long tags the newest 10,000 runs."""
    tag, version = await reports.version(request.tag)

    async def draw() -> bytes:
        results = await reports.results(tag, MOST_RUNS)
        # It takes some tenths of a second: never on the event loop.
        return await asyncio.to_thread(_drawn, tag, results, request.format)

    content = await drawings.get((tag.name, request.format), version, draw)
    media = "image/png" if request.format == "png" else "image/svg+xml"
    return Picture(media_type=media, content=content)


def _drawn(tag: TagRecord, results: Sequence[Result], kind: Literal["png", "svg"]) -> bytes:
    found = points(results, tag.direction)
    seen = window(found, tag.direction)
    title = f"{tag.name}: {tag.total} experiments, {tag.kept} kept"
    metric = "delta_bpb" if any(e.delta_bpb is not None for e in results) else tag.metric
    return draw_progress(thinned(found, seen), crashes(results), seen, title, metric, kind)
