"""The texts of the charts: each is within its chart, and none lies over another."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from tests.journeys.running import RunningLab
from tests.page.pages import Page
from tests.page.test_runs import measured

SHOWN = """
    const { colours, load } = await import("/static/charts.js");
    const { getInstanceByDom, init } = await load();
    const isShown = (one) => !one || (!one.ignore && !one.invisible && isShown(one.parent));
    const box = (one) => {
        const found = one.getBoundingRect().clone();
        found.applyTransform(one.getComputedTransform());
        return [one.style.text, found.x, found.y, found.x + found.width, found.y + found.height];
    };
    const isText = (one) => one.type === "tspan" && one.style.text && isShown(one);
    const textsOf = (chart) => chart?.getZr().storage.getDisplayList(true).filter(isText).map(box) ?? [];
"""
TEXTS = (
    SHOWN
    + """
    const element = document.querySelector("#view .plot");
    return { size: [element.clientWidth, element.clientHeight], texts: textsOf(getInstanceByDom(element)) };
"""
)
TIMELINES = (
    SHOWN
    + """
    const { timeline } = await import("/static/timeline.js");
    const element = document.createElement("div");
    element.style = "width: 340px; height: 350px";
    const chart = init(element, null, { renderer: "canvas", width: 340, height: 350 });
    return Array.from({ length: 200 }, (_, nth) => {
        const first = 1.8e9 + 0.773 * nth;
        const last = first + 0.01 * 1.1 ** nth;
        const common = { id: "a", verdict: "keep", agent: "a", duration_s: null };
        const rows = [first, last].map((at) => ({ ...common, finished_at: at }));
        chart.setOption({ ...timeline(rows, String, colours()), animation: false });
        chart.getZr().flush();
        return textsOf(chart);
    });
"""
)
SLACK_PX = 1.0


def wrong(page: Page) -> list[list[Any]]:
    """What is misplaced in the view's first chart."""
    found = page.asked(TEXTS)
    width, height = found["size"]
    return misplaced(width, height, found["texts"])


def misplaced(width: float, height: float, texts: list[list[Any]]) -> list[list[Any]]:
    """Texts that leave their chart, and pairs that overlap."""
    beyond = [
        one for one in texts if min(one[1:3]) < -SLACK_PX or one[3] > width + SLACK_PX or one[4] > height
    ]
    pairs = ((one, other) for nth, one in enumerate(texts) for other in texts[:nth])
    return beyond + [[one, other] for one, other in pairs if _overlap(one, other)]


def _overlap(one: list[Any], other: list[Any]) -> bool:
    return all(
        one[low] + SLACK_PX < other[high] and other[low] + SLACK_PX < one[high]
        for low, high in ((1, 3), (2, 4))
    )


@pytest.mark.parametrize("kind", ["near misses", "crashes", "nothing"])
def test_labels_neither_overlap_nor_leave_their_chart(
    page: Page, lab: RunningLab, tag: str, kind: str
) -> None:
    if kind == "near misses":
        measured(lab, tag, 3.0, *(3.0001 + nth / 1e6 for nth in range(20)), 900.0)
    elif kind == "crashes":
        body = {"hypothesis": "h", "category": "other", "commit_sha": "def0001", "diff_summary": "d"}
        crashed = lab.post("experiment/register", tag=tag, **body)["experiment_id"]
        lab.post("experiment/crash", experiment_id=crashed, error="CUDA out of memory")
    views: list[dict[str, Any]] = [
        {},
        {"x": "time"},
        {"y": "log", "show": "all"},
        {"plot": "timeline"},
        {"view": "branches"},
    ]

    for width in ("wide", "phone"):
        for address in views:
            with page.on_a_phone() if width == "phone" else nullcontext():
                page.show(tag=tag, **address)
                page.browser.until(lambda: page.texts("#view .plot canvas"), "the chart")
                page.settles(lambda: wrong(page), [])
    assert page.said() == []


def test_times_stay_within_the_timeline_whenever_its_runs_end(page: Page) -> None:
    page.show()

    assert [misplaced(340, 350, texts) for texts in page.asked(TIMELINES)] == [[]] * 200
