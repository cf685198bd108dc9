"""The view of beliefs: hypotheses, how each moved, the theory graph, importance, and freezing a dimension."""

from __future__ import annotations

from typing import Any

import pytest

from tests.journeys.running import RunningLab
from tests.page.pages import Page
from tests.page.swarms import Swarm, drawn, figure, table

HISTORY, GRAPH, IMPORTANCE, PARALLEL = range(4)


@pytest.fixture
def swarm(lab: RunningLab, tag: str) -> Swarm:
    return Swarm(lab, f"{tag}s")


def proposed(swarm: Swarm, statement: str, **more: Any) -> None:
    proposal = {
        "statement": statement,
        "type": "positive",
        "importance": 0.9,
        "rationale": "it trains longer",
    }
    proposal |= {"test_spec": None, "config_constraint": {"LR": 0.003}, **more}
    answer = swarm.lab.post("hypothesis/propose", tag=swarm.tag, proposal=proposal)
    assert answer["accepted"], answer


def test_a_belief_is_drawn_over_its_evidence_with_its_interval(page: Page, swarm: Swarm) -> None:
    swarm.run(swarm.join(f"{swarm.tag}-ann"), 0.9, 0.91, 0.92)
    swarm.lab.until(lambda: swarm.tested()["n_experiments"], "evidence")
    name = swarm.tested()["hypothesis_id"]

    page.show(tag=swarm.tag, view="beliefs", hypothesis=name)

    def is_shown() -> bool:
        found = next(one for one in swarm.hypotheses() if one["hypothesis_id"] == name)
        low, high = (f"{end:.2f}" for end in found["credible_interval_90"])
        belief = [f"{found['posterior_mean']:.2f}", found["statement"]]
        interval = figure(page, "90 % interval")[1:2]
        return figure(page, "Belief")[1:] == belief and interval == [f"{low} to {high}"]

    page.browser.until(is_shown, "the belief")

    def steps() -> Any:
        """The bands of the chart, once it begins with the first piece of evidence."""
        found = drawn(page, HISTORY)
        return found if len(found) == 3 and len(found[2]["data"]) > 1 else None

    lower, width, mean = page.browser.until(steps, "the chart")
    assert [point["value"][0] for point in mean["data"]][:2] == [0, 1]
    assert mean["data"][0]["value"][1] == 0.5
    assert all(
        low[1] < point["value"][1] < low[1] + more[1]
        for low, point, more in zip(lower["data"], mean["data"], width["data"], strict=True)
    )
    page.settles(
        lambda: [(row[1], row[2], row[4][:3]) for row in table(page, "evidence")][-1:],
        [("won", "baseline", "+0.")],
    )
    assert page.said() == []


def test_hypotheses_are_mixed_by_status_drawn_as_a_graph_and_chosen_with_their_protocol(
    page: Page, swarm: Swarm
) -> None:
    parent = swarm.hypothesis("LR matters")["hypothesis_id"]
    proposed(swarm, "a learning rate of 0.003 is the best", parent_id=parent)
    spec = {"type": "single_factor_effect", "variable": "LR", "values": [0.001, 0.01], "min_runs_per_cell": 3}
    spec |= {"decision_rule": {"threshold": 0.01}}
    of_sgd = {"phase": "validation", "test_spec": spec, "config_constraint": {"OPTIMIZER": "sgd"}}
    proposed(swarm, "sgd needs a smaller rate than adam", **of_sgd)

    page.show(tag=swarm.tag, view="beliefs")

    page.until("4 active", ".mix")
    claims = {one["statement"] for one in swarm.hypotheses()}

    def graph_of_all() -> Any:
        found = drawn(page, GRAPH)
        return found and {one["text"] for one in found[0]["data"]} == claims and found[0]

    graph = page.browser.until(graph_of_all, "the graph")
    texts = {one["id"]: one["text"] for one in graph["data"]}
    parts = [edge for edge in graph["links"] if edge["type"] == "decomposes_into"]
    assert [(texts[edge["source"]], texts[edge["target"]]) for edge in parts] == [
        ("LR matters", "a learning rate of 0.003 is the best")
    ]
    page.click("sgd needs a smaller rate than adam", "table[aria-label='hypotheses'] a")
    page.until("single_factor_effect, validation", ".facts")
    page.until("values: [0.001,0.01]", ".facts")
    chosen = swarm.hypothesis("sgd needs a smaller rate than adam")["hypothesis_id"]
    assert page.address()["hypothesis"] == chosen


def test_importance_and_the_constants_of_runs_are_drawn(page: Page, swarm: Swarm) -> None:
    swarm.run(swarm.join(f"{swarm.tag}-ann"), 0.9, 0.91, 0.92, 0.93)

    page.show(tag=swarm.tag, view="beliefs")

    page.browser.until(lambda: len(drawn(page, IMPORTANCE)) == 2, "importance")

    def gains() -> list[bool]:
        return [row["value"][-1] > 0 for series in drawn(page, PARALLEL) for row in series["data"]]

    page.settles(gains, [True] * 4)
    page.until("4 runs", "#view .note")


def test_an_operator_freezes_a_dimension_and_lets_it_vary_again(page: Page, swarm: Swarm) -> None:
    page.sign_in()
    page.show(tag=swarm.tag, view="beliefs")

    page.click("Freeze", "table[aria-label='dimensions'] tr[data-key=LR] button")
    page.browser.until(lambda: page.texts("#asking[open]"), "the page asks")
    page.browser.write("#asking input[name=value]", "0.003")
    page.browser.write("#asking input[name=reason]", "no value differs")
    question = page.confirm("Freeze")

    assert question == "Every config has this value from now on. It can be unfrozen."
    page.until("frozen at 0.003 by operator: no value differs", "table[aria-label='dimensions']")
    lr, _ = swarm.lab.post("dimension/list", tag=swarm.tag)["dimensions"]
    assert (lr["frozen"], lr["frozen_value"]) == (True, 0.003)
    page.click("Unfreeze", "table[aria-label='dimensions'] tr[data-key=LR] button")
    page.browser.until(lambda: page.texts("#asking[open]"), "the page asks")
    page.browser.write("#asking input[name=reason]", "the budget is another")
    page.confirm("Unfreeze")
    page.settles(lambda: [row[4] for row in table(page, "dimensions")], ["varies"] * 2)

    page.click("Freeze", "table[aria-label='dimensions'] tr[data-key=OPTIMIZER] button")
    page.browser.until(lambda: page.texts("#asking[open] select"), "the page asks")
    page.browser.choose("#asking select[name=value]", "sgd")
    page.browser.write("#asking input[name=reason]", "it wins")
    page.confirm("Freeze")

    page.until("frozen at sgd by operator: it wins", "table[aria-label='dimensions']")
    assert page.said() == []
