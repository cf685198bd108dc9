"""The progress plot: every run a dot, the running best as a step line."""

from __future__ import annotations

import asyncio
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field

from functions.kernel.contract import Http, Picture, Request, function
from functions.kernel.off_loop import Drawings
from functions.search.rules.suggestions import short
from state.ids import Tag
from state.records import Direction, Result, score
from state.records import Tag as TagRecord
from state.reports import Reports

# -- The points of the progress plot.

MOST_DOTS = 2000
"""Most points of a plot: more would overlap, and take seconds to draw."""
FINEST = 16_000
"""Number of dot-sized cells in a plot."""


@dataclass(frozen=True)
class Point:
    """One judged run, `best` being the running best after it."""

    nth: int
    """Place in finish order, counted from 1."""
    value: float
    kept: bool
    best: float | None
    label: str
    demoted: bool = False
    """It was kept, and a further run contradicted it."""
    baseline: bool = False


def window(drawn: Sequence[Point], direction: Direction) -> tuple[float, float] | None:
    """The range of values worth looking at: the way from the first run to the best, and as much again beyond.

    One failed idea far away would otherwise press everything else into a line. None where there is nothing to see.
    """
    kept = [p.value for p in drawn if p.kept]
    if not kept:
        return None
    low, high = min(kept), max(kept)
    span = (high - low) or abs(high) * 0.05 or 1.0
    near, far = 0.25 * span, 1.5 * span
    return (low - near, high + far) if direction == "minimize" else (low - far, high + near)


def thinned(drawn: Sequence[Point], seen: tuple[float, float] | None) -> Sequence[Point]:
    """At most MOST_DOTS points; of overlapping ones the last. What lies beyond `seen` is drawn at its edge."""
    cells: float = FINEST
    while len(drawn) > MOST_DOTS:
        drawn, cells = _one_in_each_cell(drawn, seen, cells), 0.7 * cells
    return drawn


def _one_in_each_cell(
    drawn: Sequence[Point], seen: tuple[float, float] | None, cells: float
) -> Sequence[Point]:
    """One keep (or demoted keep) and one other point of each cell, on a grid twice as wide as high."""
    rows = max(1.0, math.sqrt(cells / 2))
    low, high = seen or (min(p.value for p in drawn), max(p.value for p in drawn))
    begin, end = drawn[0].nth, drawn[-1].nth
    wide, tall = (end - begin + 1) / (2 * rows), high / rows - low / rows or 1.0
    found: dict[tuple[int, int, bool], Point] = {}
    for p in drawn:
        column, row = int((p.nth - begin) / wide), int(min(max(p.value, low), high) / tall - low / tall)
        found[column, row, p.kept or p.demoted] = p
    return sorted(found.values(), key=lambda p: p.nth)


def points(finished: Sequence[Result], direction: Direction) -> list[Point]:
    """Every run that has a value, in finish order; crashes leave a gap in the numbers."""
    drawn: list[Point] = []
    best: float | None = None
    for e in finished:
        if e.own_value is None or e.judged is None or e.finish_number is None:
            continue
        kept = e.status == "keep"
        if kept and (best is None or score(e.judged, direction) < score(best, direction)):
            best = e.judged
        drawn.append(
            Point(
                *(e.finish_number, e.own_value, kept, best, e.description),
                demoted=e.trust == "demoted",
                baseline=e.baseline,
            )
        )
    return drawn


def crashes(finished: Sequence[Result]) -> list[int]:
    """The places of the newest runs that crashed or took too long, in finish order."""
    failed = [e.finish_number for e in finished if e.status in ("crash", "timeout")]
    return [nth for nth in failed if nth is not None][-MOST_DOTS:]


# -- Plots, drawn by matplotlib without a screen.

LABELS_AT_MOST = 25


def draw_progress(
    points: Sequence[Point],
    crashes: Sequence[int],
    window: tuple[float, float] | None,
    title: str,
    metric: str,
    kind: Literal["png", "svg"],
) -> bytes:
    """Every run a dot, kept ones larger and labelled, the running best as a step line.

    The baseline is a square. Demoted keeps are hollow diamonds. Crashes, which have no value, are crosses at the
    lower edge. Runs outside the window of values are drawn at its edge, as triangles.
    """
    # matplotlib takes half a second to import: only those who draw pay for it. The object interface keeps no
    # global figure, so threads do not meet.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()

    def dots(of: Sequence[Point], size: int, **look: Any) -> None:
        axes.scatter([p.nth for p in of], [p.value for p in of], s=size, **look)

    low, high = window or (-math.inf, math.inf)
    seen = [p for p in points if low <= p.value <= high]
    rest = [p for p in seen if not p.kept and not p.demoted]
    demoted = [p for p in seen if p.demoted]
    kept = [p for p in points if p.kept and not p.baseline]
    bases = [p for p in points if p.kept and p.baseline]
    dots(rest, 14, color="#b8b8b8", label="discarded")
    dots([replace(p, value=high) for p in points if p.value > high], 24, color="#b8b8b8", marker="^")
    dots([replace(p, value=low) for p in points if p.value < low], 24, color="#b8b8b8", marker="v")
    dots(kept, 42, color="#1f9d55", zorder=3, label="kept")
    if bases:
        dots(bases, 30, color="#333333", marker="s", zorder=3, label="baseline")
    if demoted:
        dots(demoted, 34, facecolors="none", edgecolors="#c26a00", marker="D", label="demoted")
    if crashes:
        at_edge = [Point(nth, 0.02, kept=False, best=None, label="") for nth in crashes]
        dots(at_edge, 24, color="#b3261e", marker="x", transform=axes.get_xaxis_transform(), label="crashed")
        # matplotlib leaves out of the range what it places by the axes' height
        axes.update_datalim([(nth, 0.0) for nth in crashes], updatey=False)
    line = [p for p in points if p.best is not None]
    axes.step(
        [p.nth for p in line],
        [p.best for p in line if p.best is not None],
        where="post",
        color="#1f9d55",
        alpha=0.7,
        label="running best",
    )
    for p in [*bases, *kept][-LABELS_AT_MOST:]:
        axes.annotate(
            short(p.label, 40),
            (p.nth, p.value),
            textcoords="offset points",
            xytext=(5, 6),
            fontsize=8,
            rotation=20,
            color="#14663a",
            parse_math=False,
        )
    axes.set_title(title, loc="left")
    axes.set(xlabel="experiment, in finish order", ylabel=metric)
    if kept:  # the label of the newest one stays within the axes
        last = max([points[-1].nth, *crashes])
        axes.set_xlim(right=last + 0.2 * (last - points[0].nth) + 1)
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.25)
    if window is not None:
        margin = 0.03 * (high - low)
        axes.set_ylim(low - margin, high + margin)
    if points or crashes:
        # above the axes: the newest results are in their right corners
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=7, borderaxespad=0.3, fontsize=8)
    else:
        axes.text(0.5, 0.5, "no finished experiment yet", transform=axes.transAxes, ha="center")
        axes.set(xticks=[], yticks=[])
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind)
    return buffer.getvalue()


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
    metric = "delta_bpb" if any(e.by_delta for e in results) else tag.metric
    return draw_progress(thinned(found, seen), crashes(results), seen, title, metric, kind)
