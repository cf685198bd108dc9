"""The view of a tag's program: versions with their changes, the draft of the next one, and the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import Browser
from tests.journeys.running import RunningLab, running_lab
from tests.page.pages import Page
from tests.page.swarms import Swarm, figure, table


@pytest.fixture
def swarm(lab: RunningLab, tag: str) -> Swarm:
    return Swarm(lab, f"{tag}s")


def written(swarm: Swarm, reason: str) -> None:
    swarm.lab.post("program/write", tag=swarm.tag, reason=reason)


def added(page: Page) -> list[str]:
    return [line for line in page.texts(".patch .added") if line.startswith("+")]


def test_versions_are_listed_with_what_each_changed(page: Page, swarm: Swarm) -> None:
    written(swarm, "the first plan")
    swarm.run(swarm.join(f"{swarm.tag}-ann"), 0.9)
    written(swarm, "the plan has changed")

    page.show(tag=swarm.tag, view="program")

    reasons = [["2", "the plan has changed"], ["1", "the first plan"]]
    page.settles(lambda: [[row[0], row[3]] for row in table(page, "versions")], reasons)
    page.settles(lambda: figure(page, "Version")[1:], ["2", "the plan has changed"])
    page.browser.until(lambda: any("after 1 result" in line for line in added(page)), "the change")
    page.click("1", "table[aria-label='versions'] a")
    page.browser.until(lambda: any("after 0 results" in line for line in added(page)), "the other change")
    assert page.address()["number"] == "1"
    page.click("Text")
    page.browser.until(lambda: page.texts(".patch")[0].startswith("## Current direction"), "the text")
    assert page.texts("#view button.action") == [], "a visitor sees no controls"
    page.until("NIGHTJAR_PIPELINE_ENABLED=true", "#view code")
    assert page.said() == []


def test_an_operator_writes_a_version_and_it_appears(page: Page, swarm: Swarm) -> None:
    page.sign_in()
    page.show(tag=swarm.tag, view="program")
    page.until("No version yet.")

    page.click("Write a version")
    page.confirm("Write a version")

    page.settles(
        lambda: [[row[0], row[3]] for row in table(page, "versions")], [["1", "an operator asked for it"]]
    )


def test_the_journal_shows_its_checkpoints_as_tables(page: Page, swarm: Swarm) -> None:
    page.show(tag=swarm.tag, view="program")
    page.until("No checkpoint yet")
    swarm.run(swarm.join(f"{swarm.tag}-ann"), 0.9, 0.8)
    swarm.lab.until(lambda: swarm.tested()["n_experiments"], "a run was learned from")

    swarm.lab.post("journal/checkpoint", tag=swarm.tag)

    page.until("Checkpoint 1", ".journal summary")
    page.until("LR matters", ".journal td")
    page.until("Belief movements", ".journal details[open] h3")


def test_an_operator_flushes_a_draft_of_a_lab_that_drafts_ahead(browser: Browser, tmp_path: Path) -> None:
    with running_lab(tmp_path, NIGHTJAR_PIPELINE_ENABLED="true") as drafting:
        drafting.start()
        page, swarm = Page(browser, drafting), Swarm(drafting, "night")
        drafting.post("search/set-policy", tag="night", policy={"stopping.rule": "stochastic"})
        workers = [swarm.join(name) for name in ("ann", "bob", "eve")]
        for worker_id in workers:
            swarm.run(worker_id, 0.95)
        drafting.until(lambda: sum(swarm.targets()) == len(workers), "the workers are divided")
        written(swarm, "the first plan")
        page.sign_in()
        page.show(tag="night", view="program")
        page.browser.until(lambda: figure(page, "Trust in drafts")[1:2] == ["0.50"], "the trust")
        for worker_id in workers:
            swarm.begin(worker_id, 0.1, 0.2, 0.4, 0.6, 0.8)

        page.until("ready", ".facts .badge")
        page.click("Flush the draft")
        page.confirm("Flush")

        page.browser.until(lambda: figure(page, "Trust in drafts")[1:2] == ["0.30"], "trust has fallen")
        page.browser.until(lambda: page.texts(".facts .badge") == [], "no draft is left")
        assert page.said() == []
