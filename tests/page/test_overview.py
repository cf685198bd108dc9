"""A tag at a glance: figures, the plot of all runs, pause and resume."""

from __future__ import annotations

from typing import Any

from tests.browser import Browser
from tests.journeys.running import RunningLab
from tests.page.pages import CHART, Page, measured
from tests.page.swarms import figure

PLACE = f"""{CHART}
    const box = element.getBoundingClientRect();
    const [x, y] = chart.convertToPixel({{ gridIndex: 0 }}, [2, 2.5]);
    return [box.x + x - 2, box.y + y];
"""
"""Where the point of the second run, of the value 2.5, is in the window."""
OPTION = f"{CHART} return chart?.getOption();"


def zoomed(page: Page) -> float:
    """Percent of the x axis in sight."""
    zoom = page.asked(OPTION, 0)["dataZoom"][0]
    return float(zoom["end"] - zoom["start"])


def series(page: Page) -> dict[str, Any]:
    """The chart's series by name, each with its points."""
    return {each["name"]: each["data"] for each in page.series() if each.get("name")}


def places(page: Page, verdict: str) -> list[Any]:
    return [point["value"] for point in series(page).get(verdict, [])]


def top(page: Page) -> float:
    """The upper end of the value's axis."""
    return float(page.asked(OPTION, 0)["yAxis"][0]["max"])


def test_the_results_come_first(page: Page, lab: RunningLab, tag: str) -> None:
    measured(lab, tag, 3.0, 2.5)

    page.show(tag=tag)

    page.until("+0.500000", ".figures")
    page.until("3.000000 to 2.500000", ".figures")
    page.settles(lambda: figure(page, "GPU hours")[1:2], ["0.00"])
    page.until("What mattered most: LR 0.1 -> 2.5 (+0.500000)", ".headline")
    sizes = page.run(
        "return [...document.querySelectorAll('.figures dd:not(.more)')]"
        ".map((figure) => parseFloat(getComputedStyle(figure).fontSize))"
    )
    assert sizes[0] > max(sizes[1:]), "the best is the largest number"


def test_the_plot_shows_every_run_by_its_verdict_and_grows_without_a_jump(
    page: Page, lab: RunningLab, tag: str
) -> None:
    measured(lab, tag, 3.0, 2.5, 4.0)
    page.show(tag=tag)
    page.settles(lambda: series(page).get("best"), [[1, 3.0], [2, 2.5], [3, 2.5]])
    assert places(page, "keep") == [[2, 2.5], [1, 3.0]]
    assert places(page, "discard") == [[3, 4.0]]
    page.until("2.500000", ".figures")
    tops = (
        "return ['.figures', '.plot', '.legend']"
        ".map((css) => Math.round(document.querySelector(css).getBoundingClientRect().top))"
    )
    before = page.run(tops)

    measured(lab, tag, 2.0)

    page.browser.until(lambda: series(page)["best"][-1:] == [[4, 2.0]], "the new best")
    page.until("2.000000", ".figures")
    assert page.run(tops) == before, "nothing jumps"


def test_a_baseline_is_no_keep_and_begins_the_best_line(page: Page, lab: RunningLab, tag: str) -> None:
    fresh = f"{tag}fresh"
    lab.setup(fresh, baseline_first=True)
    lab.submit(fresh)

    page.show(tag=fresh)

    page.settles(lambda: places(page, "baseline"), [[1, 1.0]])
    assert places(page, "keep") == []
    assert series(page)["best"][0] == [1, 1.0]
    page.show(tag=fresh, view="runs", status="baseline")
    page.settles(lambda: [row[:2] for row in page.rows()], [["1", "baseline"]])


def test_a_crash_stands_on_the_strip_and_an_outlier_takes_no_room(
    page: Page, lab: RunningLab, tag: str
) -> None:
    names = measured(lab, tag, 3.0, *(2.9 + nth / 100 for nth in range(12)), 900.0)
    body = {"hypothesis": "h", "category": "other", "commit_sha": "def0000", "diff_summary": "d"}
    crashed = lab.post("experiment/register", tag=tag, **body)["experiment_id"]
    lab.post("experiment/crash", experiment_id=crashed, error="CUDA out of memory")

    page.show(tag=tag)

    page.until("1 beyond the axis", ".note")
    page.settles(lambda: [point["id"] for point in series(page).get("crash", [])], [crashed])
    page.browser.until(lambda: top(page) < 10, "the usual range")
    page.click("all", ".axes button")
    page.browser.until(lambda: top(page) > 900, "the whole axis")
    assert page.address() == {"tag": tag, "show": "all"}
    assert len(names) == 14


def test_a_wheel_zooms_and_a_click_on_a_point_opens_its_run(page: Page, lab: RunningLab, tag: str) -> None:
    names = measured(lab, tag, 3.0, 2.5)
    page.show(tag=tag)
    page.browser.until(lambda: len(series(page).get("keep", [])) == 2, "the points")

    def is_zoomed() -> bool:
        page.mouse("mouseWheel", *page.asked(PLACE, 0), deltaY=-200, deltaX=0)
        return zoomed(page) < 100

    page.browser.until(is_zoomed, "the zoom")
    page.show(tag=tag, view="agents")
    page.show(tag=tag)
    page.browser.until(lambda: len(series(page).get("keep", [])) == 2, "the points again")

    def opened() -> bool:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            page.mouse(kind, *page.asked(PLACE, 0), button="left", clickCount=1)
        return page.address().get("run") == names[1]

    page.browser.until(opened, "the run of the point")
    assert page.said() == []


def test_an_operator_pauses_and_resumes_a_tag_and_all_tags(page: Page, lab: RunningLab, tag: str) -> None:
    page.show(tag=tag)
    page.until("slot", "#health")
    assert page.texts("#all button, .acts button") == [], "a visitor sees no controls"
    page.sign_in()
    page.click("Pause", ".acts button")
    assert page.confirm("Pause") == "No further run of this tag starts. Running ones finish."
    assert tag in lab.get("lab/status")["paused_tags"]
    page.click("Resume", ".acts button")
    page.confirm("Resume")
    page.until("Pause", ".acts")

    page.click("Pause all", "#all button")
    question = page.confirm("Pause all")

    assert question.endswith("starts. Running ones finish.")
    page.settles(lambda: page.texts("#all button"), ["Resume all"])
    assert len(lab.get("lab/status")["paused_tags"]) == lab.get("lab/status")["tags"]
    page.until("paused", "#health")
    page.click("Resume all", "#all button")
    page.confirm("Resume all")
    page.settles(lambda: page.texts("#all button"), ["Pause all"])
    assert lab.get("lab/status")["paused_tags"] == []


HELD = """
    const fetched = window.fetch;
    const released = new Promise((done) => { window.release = done; });
    window.fetch = async (path, options) => {
        if (path === "/api/report/tags") await released;
        return fetched(path, options);
    };
"""
"""The list of tags comes when the test says so."""


def test_a_question_about_the_lab_stays_open_while_the_first_view_opens(
    browser: Browser, lab: RunningLab, tag: str
) -> None:
    browser.before_each_page(HELD)
    page = Page(browser, lab)
    page.sign_in()
    page.click("Pause all", "#all button")

    page.run("window.release()")

    page.browser.until(lambda: page.texts("#view.overview .figures"), "the view")
    assert page.texts("#asking[open] h2") == ["Pause all tags?"]
