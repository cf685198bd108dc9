"""Commands of an operator on a running lab: setup, pause, unpause, webhook."""

from __future__ import annotations

import json

import pytest

from tests.commands import nightjar, printed
from tests.journeys.running import RunningLab
from tests.triggers.test_bearer import listening


def test_setup_shows_what_a_tag_is_measured_by_and_what_a_second_one_ignored(lab: RunningLab) -> None:
    words = ("setup", "night", "--metric", "accuracy", "--budget", "60", "--policy", "keep_rule=strict")
    opened = printed(lab.data, *words)
    again = printed(lab.data, "setup", "night")
    other = nightjar(lab.data, "setup", "night", "--metric", "val_loss", "--budget", "90", "--json")
    people = nightjar(lab.data, "setup", "night", "--metric", "val_loss", "--budget", "90")

    assert opened.startswith("night: opened\n")
    assert "accuracy: a higher value is better" in opened
    assert "60 s for each run" in opened
    assert lab.post("search/policy", tag="night")["policy"]["keep_rule"] == "strict"
    assert again.startswith("night: exists already, with 0 experiments\n")
    assert "60 s for each run" in again
    assert (other.returncode, people.returncode) == (1, 1)
    assert json.loads(other.stdout)["ignored"]["policy.budgets.base_s"] == {"sent": 90.0, "has": 60.0}
    assert "metric.name 'val_loss': it has 'accuracy'" in people.stdout
    assert "set_policy --tag night changes its policy\n-> go on with it, or open another tag" in people.stdout


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("unopened", "--metric", "foo"), 1, "say --maximize or --minimize"),
        (("unopened", "--minimize"), 2, "--metric NAME"),
        (("unopened", "--policy", "keep_rule"), 2, "NAME=VALUE"),
        (("unopened", "--budget", "0"), 1, "budgets.base_s"),
    ],
)
def test_setup_says_what_it_does_not_take(
    lab: RunningLab, words: tuple[str, ...], code: int, told: str
) -> None:
    done = nightjar(lab.data, "setup", *words)

    assert (done.returncode, told in done.stderr) == (code, True), done.stderr
    assert "unopened" not in [tag["name"] for tag in lab.get("report/tags")["tags"]]


def test_a_paused_tag_is_shown_so_and_goes_on_after_unpause(lab: RunningLab) -> None:
    lab.setup("held")
    run = lab.submit("held", config_delta={"SECONDS": 600.0})
    lab.until_status(run, "running")
    first = printed(lab.data, "pause", "held", "--reason", "prices are high", "--stop-running")
    lab.submit("held")
    second = printed(lab.data, "pause", "--tag", "held")
    status = printed(lab.data, "status")
    unpaused = printed(lab.data, "unpause", "held")
    again = printed(lab.data, "unpause", "held", "--json")

    assert "held: paused (prices are high); waiting: 0 experiments" in first
    assert f"its workers end {run}" in first
    lab.until_status(run, "stopped")
    assert "./nightjar unpause held" in first
    assert "held: paused since 20" in second
    assert "waiting: 1 experiment\n" in second
    [row] = [line.split() for line in status.splitlines() if line.startswith("held ")]
    assert "paused" in row
    assert "held: goes on; waiting: 1 experiment\n" in unpaused
    assert json.loads(again)["changed"] is False
    lab.until_idle()


def test_webhooks_are_added_listed_tested_and_removed(lab: RunningLab) -> None:
    with listening(200) as (url, _):
        made = nightjar(
            lab.data, "webhook", "add", f"{url}/a/secret/path", "--type", "best.changed", "--tag", "t"
        )
        [name] = [row["id"] for row in json.loads(printed(lab.data, "webhook", "list", "--json"))["webhooks"]]
        tested = printed(lab.data, "webhook", "test", name)
        listed = printed(lab.data, "webhook", "list")
    gone = nightjar(lab.data, "webhook", "test", name)
    mistyped = nightjar(lab.data, "webhook", "add", url, "--type", "best.chnged")
    removed = printed(lab.data, "webhook", "remove", name)
    unknown = nightjar(lab.data, "webhook", "test", name)

    assert made.stdout.startswith("whsec_")
    assert len(made.stdout.split()) == 1
    assert name in made.stderr
    assert tested == f"{name}: delivered, the receiver answered 200\n"
    assert {name, "active"} <= {*listed.split()}
    assert max(map(len, listed.splitlines())) <= 100
    assert "secret" not in listed + made.stderr
    assert (gone.returncode, "not delivered" in gone.stdout) == (1, True)
    assert "there are no events of this type" in mistyped.stderr
    assert "Value error" not in mistyped.stderr
    assert removed == f"{name}: removed\n"
    assert (unknown.returncode, name in unknown.stderr) == (1, True)
    assert printed(lab.data, "webhook", "list").startswith("no webhook")
