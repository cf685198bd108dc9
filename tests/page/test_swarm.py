"""The view of a swarm: figures, active runs, leaders, populations, and what each worker is told."""

from __future__ import annotations

import pytest

from tests.journeys.running import RunningLab
from tests.page.pages import Page
from tests.page.swarms import Swarm, figure, table

EXTENDING = {
    "stopping.rule": "stochastic",
    "stopping.warmup_runs": 0,
    "stopping.min_peers": 1,
    "stopping.extend_at": 0.8,
}


@pytest.fixture
def swarm(lab: RunningLab, tag: str) -> Swarm:
    return Swarm(lab, f"{tag}s")


def test_a_swarm_is_shown_by_its_figures_and_leaders(page: Page, swarm: Swarm) -> None:
    for worker_id, value in (("ann", 0.9), ("bob", 0.8)):
        swarm.run(swarm.join(f"{swarm.tag}-{worker_id}"), 1.1, value)

    page.show(tag=swarm.tag, view="swarm")

    leaders = [[f"{swarm.tag}-bob", "+0.2", "2", "H100"], [f"{swarm.tag}-ann", "+0.1", "2", "H100"]]
    page.settles(lambda: [[row[1], row[2][:4], *row[3:5]] for row in table(page, "leaderboard")], leaders)
    page.browser.until(
        lambda: (
            [table(page, "leaderboard")[0][2], f"by {swarm.tag}-bob, over its baseline"]
            == figure(page, "Best gain")[1:]
        ),
        "its gain in the figures, with the digits that the noise allows",
    )
    values = {"Experiments": "4", "Workers": "2", "Stopped early": "0.0 %", "GPU time saved": "0 s"}
    page.settles(lambda: {name: "".join(figure(page, name)[1:2]) for name in values}, values)
    page.settles(lambda: {row[0] for row in table(page, "populations")}, {"LR matters", "OPTIMIZER matters"})
    assert page.said() == []


def test_active_runs_are_extended_or_stopped_and_go_without_a_reload(
    page: Page, swarm: Swarm, lab: RunningLab
) -> None:
    lab.post("search/set-policy", tag=swarm.tag, policy=EXTENDING)
    ann, bob = (swarm.join(f"{swarm.tag}-{name}") for name in ("ann", "bob"))
    worse, better = swarm.begin(ann), swarm.begin(bob)
    for name, progress, value in ((worse, 0.8, 1.0), (better, 0.8, 0.8), (better, 1.06, 0.75)):
        lab.http.post(
            "/tick", json={"id": name, "p": progress, "m": value, "d": value - 1}
        ).raise_for_status()
    page.show(tag=swarm.tag, view="swarm")
    page.until("LR = ", "table[aria-label='active runs']")

    def states() -> dict[str, str]:
        return {row[0]: row[1] for row in table(page, "active runs")}

    page.settles(states, {worse: "active", better: "extended"})

    lab.post("tag/pause", tag=swarm.tag, stop_running=True)

    page.settles(states, {worse: "stopped", better: "stopped"})
    for worker_id, name in ((ann, worse), (bob, better)):
        swarm.end(worker_id, name, 0.95)
    page.until("No run goes on.")
    assert page.said() == []


def test_a_worker_s_panel_previews_what_sync_answers_it(page: Page, swarm: Swarm, lab: RunningLab) -> None:
    worker_id = swarm.join(f"{swarm.tag}-ann", contact="ann@example.org")
    swarm.run(worker_id, 0.9)
    lab.until_followed()
    page.show(tag=swarm.tag, view="swarm")

    page.click(worker_id, "#view td a")

    page.until("Strategy", "#worker")
    page.settles(lambda: [row[0] for row in table(page, "dimensions")], ["LR", "OPTIMIZER"])
    page.settles(lambda: [row[0][:4] for row in table(page, "best configs")], ["+0.1"])
    shown = page.texts("#worker dd")
    answer = lab.http.get(f"/sync/{worker_id}").json()
    assert answer["hypothesis_statement"] in shown
    assert answer["population_id"] in shown
    assert page.texts("#worker dd time[title]"), "its newest result has a relative time"
    assert "ann@example.org" not in page.texts("#worker")[0], "a visitor learns nobody's address"
    assert page.address()["worker"] == worker_id
    page.click("Close", "#worker a")
    page.browser.until(lambda: page.texts("#worker") in ([], [""]), "the panel is closed")
    page.sign_in()
    page.show(tag=swarm.tag, view="swarm", worker=worker_id)
    page.until("ann@example.org", "#worker")
