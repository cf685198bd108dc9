"""The table of functions, calls from a form, schedules, and the policy."""

from __future__ import annotations

import json
from typing import Any

from tests.journeys.running import RunningLab
from tests.page.pages import HOSTILE, Page, measured


def fill(page: Page, field: str, text: str) -> None:
    page.browser.until(lambda: page.texts(f"form.call [name={field}]"), f"the field {field}")
    page.run("document.querySelector(arguments[0]).value = arguments[1]", f"form.call [name={field}]", text)


def answer(page: Page) -> Any:
    """What the call answered, as JSON."""
    page.browser.until(lambda: page.texts(".answer:not([hidden])"), "the answer")
    return json.loads(page.texts(".answer")[0])


def test_every_function_has_a_row_with_its_role_and_triggers(page: Page, lab: RunningLab) -> None:
    page.show(view="functions", q="pool::drain")

    page.settles(
        lambda: [row[:3] for row in page.rows()], [["pool::drain", "operator", "POST /api/pool/drain"]]
    )
    page.until("1 function", ".note")
    page.click("pool::drain", "#view td a")
    page.until("let it take runs again", "#details")
    assert page.address() == {"view": "functions", "q": "pool::drain", "function": "pool::drain"}
    page.until("For operator, changes the lab.", "#details")
    page.show(view="functions", q="event::trim")
    page.until("in ", "#view td.column-next time")
    page.show(view="functions", function="event::trim")
    page.until("Next firing in ", "#details .clock")
    assert page.texts("#details button, #details form") == [], "a visitor calls nothing that changes the lab"
    assert page.said() == []


def test_a_visitor_calls_what_changes_nothing_by_post_or_by_path(
    page: Page, lab: RunningLab, tag: str
) -> None:
    (name,) = measured(lab, tag, 3.0)
    page.show(view="functions", function="experiment::history")
    fill(page, "tag", tag)
    fill(page, "limit", "1")
    page.click("Call", "form.call button")
    assert [each["experiment_id"] for each in answer(page)["experiments"]] == [name]

    page.show(view="functions", function="experiment::get")
    fill(page, "experiment_id", name)
    page.click("Call", "form.call button")

    assert answer(page)["experiment"]["experiment_id"] == name
    assert page.said() == []


def test_a_refusal_is_shown_as_text(page: Page, lab: RunningLab) -> None:
    page.show(view="functions", function="trace::list")
    fill(page, "tag", HOSTILE)
    page.click("Call", "form.call button")
    assert answer(page)["status"] == 422
    assert page.run("return window.owned ?? null") is None

    page.show(view="functions", function="event::list")
    fill(page, "types", "experiment.finished")
    page.click("Call", "form.call button")

    page.until("types is no JSON", ".answer")


def test_an_operator_is_asked_before_a_call_that_changes_the_lab(
    page: Page, lab: RunningLab, tag: str
) -> None:
    page.sign_in()
    page.show(view="functions", function="tag::pause")

    fill(page, "tag", tag)
    page.click("Call", "form.call button")
    question = page.confirm("Call")

    assert question == f'This changes the lab. It is sent: {{"tag":"{tag}"}}'
    assert answer(page)["tag"] == tag
    assert tag in lab.get("lab/status")["paused_tags"]
    assert page.said() == []


def test_an_operator_pauses_fires_and_resumes_a_scheduled_function(page: Page, lab: RunningLab) -> None:
    def schedule() -> dict[str, Any]:
        (found,) = (
            each for each in lab.get("cron/list")["functions"] if each["function"] == "dimension::measure"
        )
        return dict(found)

    page.sign_in()
    page.show(view="functions", function="dimension::measure")

    page.click("Pause", "#details button")
    page.browser.until(lambda: page.texts("#asking[open]"), "the page asks")
    page.run("document.querySelector('#asking [name=reason]').value = 'maintenance'")
    page.confirm("Pause")
    page.until("maintenance", "#details .clock")
    page.until(" s", "#details .clock time[title]")
    assert schedule()["paused_reason"] == "maintenance"
    fired = schedule()["by_hand"]
    page.click("Run now", "#details button")
    page.confirm("Run now")
    lab.until(lambda: schedule()["by_hand"] == fired + 1, "it is fired once")
    page.click("Resume", "#details button")
    page.confirm("Resume")
    page.until("Next firing", "#details .clock")
    assert schedule()["paused_since"] is None


def test_an_operator_changes_a_value_of_the_policy(page: Page, lab: RunningLab, tag: str) -> None:
    before = lab.post("search/policy", tag=tag)
    page.sign_in()
    page.show(tag=tag)

    page.click("Policy", ".acts button")
    page.browser.until(lambda: page.texts("#asking[open] select"), "the form")
    shown = f"near_miss_margin = {json.dumps(before['policy']['near_miss_margin'])}"
    page.browser.choose("#asking select", shown)
    page.run("document.querySelector('#asking [name=value]').value = '0.25'")
    question = page.confirm("Change")

    after = lab.post("search/policy", tag=tag)
    assert f"version {before['version'] + 1}." in question
    assert (after["version"], after["policy"]["near_miss_margin"]) == (before["version"] + 1, 0.25)
