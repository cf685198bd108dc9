"""The agents of a tag: those at work, and what each found."""

from __future__ import annotations

from tests.journeys.running import RunningLab
from tests.page.pages import Page, measured


def test_each_agent_has_a_row_that_comes_without_a_reload_and_is_sorted(
    page: Page, lab: RunningLab, tag: str
) -> None:
    page.show(tag=tag, view="agents")
    page.until("nightjar agent")

    measured(lab, tag, 3.0, 2.5, agent="ada")
    measured(lab, tag, 4.0, 4.5, 4.6, agent="bob")

    wanted = [["ada", "2", "+0.500000"], ["bob", "—", ""]]
    page.settles(lambda: [[row[0], row[2], row[5]] for row in page.rows()], wanted)
    page.click("Ideas", "th button")
    page.settles(lambda: [row[0] for row in page.rows()], ["bob", "ada"])
    page.click("bob", "#view td a")
    page.settles(lambda: [row[0] for row in page.rows()], ["5", "4", "3"])
    assert page.said() == []
    assert page.address() == {"tag": tag, "view": "runs", "agent": "bob"}


def test_agents_at_work_are_shown_with_what_they_use(page: Page, lab: RunningLab, tag: str) -> None:
    for name, cost in (("ada", 1.25), ("bob", 0.5)):
        lab.post("agent/announce", tag=tag, agent=name, state="working", starts=1, tokens=1000, cost_usd=cost)

    page.show(tag=tag, view="agents")

    page.until("1,000 tokens · 1.25 USD", "#working")
    page.browser.until(lambda: len(page.texts("#working li")) == 2, "both")
    for name in ("ada", "bob"):
        lab.post("agent/announce", tag=tag, agent=name, state="ended")
    assert page.said() == []
