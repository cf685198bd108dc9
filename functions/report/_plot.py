"""Plots, drawn by matplotlib without a screen."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Literal

from functions.rules.search.suggestions import short
from functions.views.progress import Point

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

    Demoted keeps are hollow diamonds; crashes, which have no value, crosses at the lower edge. Runs outside the
    window of values are drawn at its edge, as triangles.
    """
    # matplotlib takes half a second to import: only those who draw pay for it. The object interface keeps no
    # global figure, so threads do not meet.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    low, high = window or (-math.inf, math.inf)
    seen = [p for p in points if low <= p.value <= high]
    rest = [p for p in seen if not p.kept and not p.demoted]
    demoted = [p for p in seen if p.demoted]
    kept = [p for p in points if p.kept]
    axes.scatter([p.nth for p in rest], [p.value for p in rest], s=14, color="#b8b8b8", label="discarded")
    for edge, marker, beyond in (
        (high, "^", [p for p in points if p.value > high]),
        (low, "v", [p for p in points if p.value < low]),
    ):
        axes.scatter([p.nth for p in beyond], [edge] * len(beyond), s=24, color="#b8b8b8", marker=marker)
    axes.scatter(
        [p.nth for p in kept], [p.value for p in kept], s=42, color="#1f9d55", zorder=3, label="kept"
    )
    if demoted:
        where = [p.nth for p in demoted], [p.value for p in demoted]
        axes.scatter(*where, s=34, facecolors="none", edgecolors="#c26a00", marker="D", label="demoted")
    if crashes:
        bottom = axes.get_xaxis_transform()
        axes.scatter(
            crashes,
            [0.02] * len(crashes),
            s=24,
            color="#b3261e",
            marker="x",
            transform=bottom,
            label="crashed",
        )
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
    for p in kept[-LABELS_AT_MOST:]:
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
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.25)
    if window is not None:
        margin = 0.03 * (high - low)
        axes.set_ylim(low - margin, high + margin)
    if points or crashes:
        # above the axes: the newest results are in their right corners
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=6, borderaxespad=0.3, fontsize=8)
    else:
        axes.text(0.5, 0.5, "no finished experiment yet", transform=axes.transAxes, ha="center")
        axes.set(xticks=[], yticks=[])
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind)
    return buffer.getvalue()
