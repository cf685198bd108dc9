"""The frame of the page: tags, tabs, title, first steps, light and dark, small screens, markup, reconnection."""

from __future__ import annotations

import re

import pytest

from tests.browser import Browser
from tests.journeys.running import RunningLab
from tests.page.pages import HOSTILE, Page, measured

ROW = "#view tbody tr:not(.gap)"
VIEWS = {
    "overview": ".figures dd",
    "runs": ROW,
    "branches": ".figures dd",
    "swarm": ".empty",
    "beliefs": ".empty",
    "program": ".figures dd",
    "agents": ROW,
    "gpus": ".slot",
    "events": ROW,
    "functions": "form.call",
}
"""What each view shows once it is drawn."""
BRIGHTNESS = """
    const style = getComputedStyle(document.body);
    const sum = (colour) => colour.match(/\\d+/g).slice(0, 3).reduce((all, part) => all + Number(part), 0);
    return [style.backgroundColor, style.color].map(sum);
"""
WITHOUT_CLOCK = """
    const ask = window.fetch;
    window.fetch = async (path, options) => {
        const answer = await ask(path, options);
        if (path !== "/api/lab/status") return answer;
        const status = await answer.json();
        delete status.counts.clock;
        return Response.json(status);
    };
"""


def test_all_views_show_values_and_gains_with_the_digits_of_the_noise(
    page: Page, lab: RunningLab, tag: str
) -> None:
    _, best = measured(
        lab, tag, 3.123456, 2.512345, agent="ada", diff_summary="a wider model", hypothesis="more is more"
    )
    retest = lab.post("experiment/retest", experiment_id=best, train=False)["retest_id"]
    lab.post("experiment/complete", experiment_id=retest, val_bpb=2.612345)
    wanted = {
        "overview": ({}, "2.612", "#view .figures"),
        "runs": ({}, "2.512", ROW),
        "run": ({"run": best}, "2.512", "#view .figures"),
        "compare": ({"ids": f"{tag}-1,{best}"}, "2.512", "#view tbody"),
        "branches": ({}, "of 2 runs", "#view"),
        "agents": ({}, "+0.611", ROW),
        "events": ({"of": tag}, "2.512", ROW),
    }

    for view, (more, text, css) in wanted.items():
        page.show(anew=False, tag=tag, view=view, **more)
        page.until(text, css)
        page.until("2.612", "#tags a[aria-current] .best")
        page.until("2 kept of 2", "#tags a[aria-current]")
        shown = page.run("return `${document.title} ${document.querySelector('main').innerText}`")
        assert re.findall(r"\d\.\d{4,}", shown) == [], view


def test_an_unknown_tag_offers_the_known_ones_and_one_without_runs_the_next_command(
    page: Page, lab: RunningLab, tag: str
) -> None:
    page.show(tag="no-such-tag")
    page.until("There is no tag no-such-tag")

    page.click(tag, "#unknown a")

    page.until(tag, "#tags a[aria-current]")
    page.until_gone("#unknown")
    for view in ("overview", "runs", "branches", "agents"):
        page.show(tag=tag, view=view)
        page.until(f"No run yet. ./nightjar agent --tag {tag} -- claude -p starts an agent.")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_view_is_readable_and_fits_a_phone_whatever_agents_write(
    page: Page, lab: RunningLab, tag: str, dark: bool
) -> None:
    measured(lab, tag, 3.0, 2.5, agent="a" * 90, hypothesis=HOSTILE + "a wider model " * 20 + "x" * 3000)
    page.sign_in()
    page.browser.dark(dark)
    try:
        with page.on_a_phone():
            for view, drawn in VIEWS.items():
                page.show(tag=tag, view=view, function="experiment::register")
                page.until("", drawn)
                ground, text = page.run(BRIGHTNESS)
                assert (ground < text) is dark, view
                assert abs(ground - text) > 400, view
                assert page.run("return innerWidth") == 390
                assert page.fits(), view
    finally:
        page.browser.dark(False)

    assert page.said() == []


def test_what_is_chosen_is_in_sight_on_a_phone(page: Page, lab: RunningLab, tag: str) -> None:
    measured(lab, tag, 3.0)
    inside = (
        "return [...document.querySelectorAll('#lab nav [aria-current]')].map((e) => e.getBoundingClientRect())"
        ".map(({ left, right }) => left >= 0 && right <= innerWidth)"
    )
    with page.on_a_phone():
        page.show(tag=tag, view="agents")
        page.settles(lambda: page.run(inside), [True, True])
        for anew in (False, True):
            page.show(view="functions", anew=anew)
            page.settles(lambda: page.run(inside), [True])
    assert page.said() == []


def test_a_tag_s_name_is_text_and_markup_that_got_in_by_a_mistake_is_refused(page: Page, tag: str) -> None:
    page.show(tag=HOSTILE)
    page.until(f"There is no tag {HOSTILE}")
    assert page.run("return document.querySelectorAll('#view img').length") == 0
    page.show(tag=tag)
    page.browser.until(lambda: page.texts(".plot canvas"), "the chart library is there")

    refused = page.run(
        "try { document.body.innerHTML = arguments[0]; return 'taken' } catch (error) { return error.name }",
        HOSTILE,
    )

    assert refused == "TypeError"
    assert page.run("return window.owned ?? null") is None


def test_health_turns_red_when_a_process_is_missing(browser: Browser, lab: RunningLab, tag: str) -> None:
    page = Page(browser, lab)
    page.show(tag=tag)
    page.until("1 slot", "#health:not(.bad)")
    page.browser.before_each_page(WITHOUT_CLOCK)

    page.show(tag=tag, anew=True)

    page.until("no clock process runs: ./nightjar up", "#health.bad")
