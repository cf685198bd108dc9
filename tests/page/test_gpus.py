"""GPUs and CPU slots: work, load, drain."""

from __future__ import annotations

from tests.journeys.running import RunningLab
from tests.page.pages import Page

SLOW = {"train.py": 'import time\ntime.sleep(600)\nimport prepare\nprint("val_bpb: 1.0")\n'}


def status(lab: RunningLab) -> str:
    (slot,) = lab.until(lambda: lab.get("pool/list")["workers"], "its slot is there")
    return str(slot["status"])


def test_a_slot_shows_its_run_and_how_long_it_holds_it(page: Page, lab: RunningLab, tag: str) -> None:
    page.show(view="gpus")
    page.until("idle", ".slot .badge")
    assert page.texts("#view button") == [], "a visitor sees no controls"

    name = lab.submit(tag, commit_sha=lab.commit(SLOW))

    page.until("training", ".slot .badge")
    page.until(f"{name} for", ".slot p")
    page.click(name, ".slot a")
    page.settles(lambda: page.address().get("run"), name)
    lab.post("experiment/stop", experiment_id=name, reason="seen enough")
    lab.until(lambda: status(lab) == "idle", "the slot is free")
    assert page.said() == []


def test_an_operator_drains_a_slot_and_takes_that_back(page: Page, lab: RunningLab) -> None:
    page.sign_in()
    page.show(view="gpus")

    page.click("Drain", ".slot button")
    question = page.confirm("Drain")

    assert question == "No further run is lent to it."
    page.until("drained by an operator", ".slot")
    assert status(lab) != "idle"
    page.click("Undo drain", ".slot button")
    page.confirm("Undo drain")
    page.until("idle", ".slot .badge")
    lab.until(lambda: status(lab) == "idle", "it is lent again")
    assert page.said() == []
