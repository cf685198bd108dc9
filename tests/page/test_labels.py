"""The texts of the charts: each is within its chart, and none lies over another."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from tests.journeys.running import RunningLab
from tests.page.pages import Page, measured

TEXTS = """
    const { load } = await import("/static/charts.js");
    const { getInstanceByDom } = await load();
    const isShown = (one) => !one || (!one.ignore && !one.invisible && isShown(one.parent));
    const box = (one) => {
        const found = one.getBoundingRect().clone();
        found.applyTransform(one.getComputedTransform());
        return [one.style.text, found.x, found.y, found.x + found.width, found.y + found.height];
    };
    const isText = (one) => one.type === "tspan" && one.style.text && isShown(one);
    const element = document.querySelector("#view .plot");
    const list = getInstanceByDom(element)?.getZr().storage.getDisplayList(true) ?? [];
    return { size: [element.clientWidth, element.clientHeight], texts: list.filter(isText).map(box) };
"""
SLACK_PX = 1.0


def wrong(page: Page) -> list[list[Any]]:
    """Texts of the view's first chart that leave it, and pairs that overlap."""
    found = page.asked(TEXTS)
    (width, height), texts = found["size"], found["texts"]
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
