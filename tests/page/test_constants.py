"""Plots of what varies between runs: the panel of constants, the timeline, and the plot of filtered runs."""

from __future__ import annotations

from typing import Any

from tests.journeys.running import RunningLab
from tests.page.pages import Page, measured


def points(page: Page, kind: str = "scatter", nth: int = 1) -> list[Any]:
    """The points of the one series of this kind, once it is drawn."""
    found = [one for one in page.series(nth) if one["type"] == kind]
    return list(found[0]["data"]) if len(found) == 1 else []


def choose(page: Page, name: str, value: str) -> None:
    page.browser.choose(f"#constants select[aria-label='{name}']", value)


def test_constants_that_vary_are_drawn_in_the_way_that_is_chosen(
    page: Page, lab: RunningLab, tag: str
) -> None:
    runs = [
        lab.submit(tag, config_delta={"VALUE": value, "SECONDS": seconds})
        for value, seconds in ((3.0, 0.1), (2.5, 0.2), (2.0, 0.1))
    ]
    for name in runs:
        lab.until_status(name, "keep")

    page.show(tag=tag)

    page.browser.until(lambda: len(points(page, kind="parallel")) == 3, "a line for each run")
    choose(page, "kind of plot", "slice")
    choose(page, "first constant", "VALUE")
    page.settles(lambda: [point["value"][:2] for point in points(page)], [[3.0, 3.0], [2.5, 2.5], [2.0, 2.0]])
    choose(page, "kind of plot", "rank")
    choose(page, "first constant", "SECONDS")
    best_is_last = [(runs[0], [0.1, 3.0, 0]), (runs[1], [0.2, 2.5, 1]), (runs[2], [0.1, 2.0, 2])]
    page.settles(lambda: [(point["id"], point["value"]) for point in points(page)], best_is_last)
    choose(page, "kind of plot", "contour")
    page.settles(lambda: [point["value"][2] for point in points(page)], [-3.0, -2.5, -2.0])
    choose(page, "kind of plot", "distribution")
    page.settles(lambda: [each["value"][0] for each in points(page, kind="line")], [2.0, 2.5, 3.0])
    assert page.address() == {"tag": tag, "kind": "distribution", "first": "SECONDS"}
    assert page.said() == []


def test_the_timeline_has_a_bar_for_each_run(page: Page, lab: RunningLab, tag: str) -> None:
    names = measured(lab, tag, 3.0, 2.5, agent="ada")
    page.show(tag=tag)

    page.click("timeline", ".axes button")

    page.settles(lambda: sorted(bar["id"] for bar in points(page, "custom", 0)), names)
    assert page.address() == {"tag": tag, "plot": "timeline"}
    assert "line: the best" not in page.texts("#view .legend")[0]
    page.click("value", ".axes button")
    page.browser.until(lambda: page.texts("#view .plot") and not points(page, "custom", 0), "values")
    assert page.said() == []


def test_the_plot_of_a_filter_of_runs_shows_those_alone(page: Page, lab: RunningLab, tag: str) -> None:
    measured(lab, tag, 3.0, 2.5, agent="ada")
    measured(lab, tag, 4.0, agent="bob")
    page.show(tag=tag, view="runs", agent="ada")

    page.click("Plot", "#view .bar a")

    page.until("2 of 3 runs", "#view .note")
    page.until("Filter: agent ada.", "#filter")
    page.click("All runs", "#filter a")
    page.until("3 runs", "#view .note")
    assert page.address() == {"tag": tag}
